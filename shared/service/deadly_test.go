package service_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/shared/service"
)

// mortal dies at an event as a process does that runs out of memory: nothing in it can catch that.
type mortal struct{ clerk }

func (m *mortal) Handle(event events.Event) ([]events.Event, error) {
	switch {
	case event.Subject == "deadly":
		runtime.Goexit()
	case strings.HasPrefix(event.Subject, "quiet"):
		return nil, nil
	}
	return m.clerk.Handle(event)
}

// dies runs an instance until its process is gone.
func (f *fixture) dies(machine service.Machine) {
	f.Helper()
	options := service.Options{Name: "negotiator", Bus: f.connect(), Machine: machine}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if err := service.Run(f.ctx, options); err == nil || !strings.Contains(err.Error(), "ended its goroutine") {
			f.Errorf("it was to die, and ended with %v", err)
		}
	}()
	<-gone // or f.ctx ends, and Run
}

// stillborn dies once it has signed the memory, before anything is delivered to it.
type stillborn struct{ clerk }

func (s *stillborn) Hears() []events.Kind {
	runtime.Goexit()
	return nil
}

// What comes before it is acknowledged and not remembered: each instance hears it again in silence.
func TestAnEventThatNoInstanceSurvivesIsRefusedAndTheNextIsHeard(t *testing.T) {
	f := newFixture(t)
	aborted, refused := f.said(events.Aborted), f.said(events.EventRefused)
	f.lose("before1")
	f.lose("before2")
	deadly := f.lose("deadly")
	f.lose("n1")
	f.dies(&mortal{})
	f.dies(&mortal{})
	f.dies(&mortal{})
	service.SetRememberAfter(t, time.Nanosecond) // of what is heard in silence, too
	f.run(service.Options{Machine: &mortal{}})
	record := f.expect(refused, fmt.Sprint(deadly.Sequence))
	kept, err := events.Open[events.Quarantine](record)
	if err != nil || kept.Reason != bus.Poison || !strings.Contains(kept.Detail, "2 instances in a row died while the machine handled it") {
		t.Errorf("%v, kept %+v", err, kept)
	}
	f.expect(aborted, "g1", "g2", "g3")
}

func TestAnEventThatTwoInstancesDiedAtWithNothingElseInHandIsRefused(t *testing.T) {
	f := newFixture(t)
	aborted, refused := f.said(events.Aborted), f.said(events.EventRefused)
	deadly := f.lose("deadly")
	f.dies(&mortal{})
	f.dies(&mortal{})
	f.lose("n1")
	f.run(service.Options{Machine: &mortal{}})
	f.expect(refused, fmt.Sprint(deadly.Sequence))
	f.expect(aborted, "g1")
}

// The first instance opens messages ahead of the machine, and is gone while it opens one.
func TestAMessageThatTwoInstancesDiedAtWhileTheyOpenedItIsRefused(t *testing.T) {
	f := newFixture(t)
	aborted, refused := f.said(events.Aborted), f.said(events.EventRefused)
	deadly := f.lose("deadly")
	f.diesOpening(deadly)
	first := f.run(service.Options{Machine: &clerk{}})
	f.until("it is delivered", func() bool { return f.unacknowledged() > 0 })
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	f.dies(&clerk{})
	f.lose("n1")
	f.run(service.Options{Machine: &clerk{}})
	record := f.expect(refused, fmt.Sprint(deadly.Sequence))
	kept, err := events.Open[events.Quarantine](record)
	if err != nil || kept.Reason != bus.Poison || !strings.Contains(kept.Detail, "died while they opened it") {
		t.Errorf("%v, kept %+v", err, kept)
	}
	f.expect(aborted, "g1")
}

// diesOpening has each instance die while it opens an event whose bytes are there.
func (f *fixture) diesOpening(deadly events.Event) {
	service.SetOpening(f.T, func(uint64) {}, func(sequence uint64) {
		if sequence == deadly.Sequence {
			runtime.Goexit()
		}
	})
}

// A supervisor ends what does not get ready while the hub is away.
func TestAnEventForWhoseBytesInstancesWaitedUntilTheyWereEndedIsHeard(t *testing.T) {
	f := newFixture(t)
	f.loseApart("n1")
	var away atomic.Bool
	away.Store(true)
	service.SetOpening(t, func(uint64) {
		if away.Load() {
			runtime.Goexit()
		}
	}, func(uint64) {})
	first := f.run(service.Options{Machine: &clerk{}})
	f.until("it is delivered", func() bool { return f.unacknowledged() > 0 })
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	f.dies(&clerk{})
	away.Store(false)
	f.run(service.Options{Machine: &clerk{}})
	f.until("it is handled or refused", func() bool { return f.logged(events.Aborted)+f.logged(events.EventRefused) > 0 })
	if f.logged(events.EventRefused) > 0 {
		t.Error("an innocent event was refused")
	}
}

// The first instance has the others in hand as well, so that the next ones have them one at a time.
func TestADeadlyMessageAmongOthersIsFoundWhereverInstancesDieOfIt(t *testing.T) {
	f := newFixture(t)
	aborted, refused := f.said(events.Aborted), f.said(events.EventRefused)
	for i := range 10 {
		f.lose(fmt.Sprintf("quiet%d", i))
	}
	deadly := f.lose("deadly")
	f.lose("n1")
	f.diesOpening(deadly)
	first := f.run(service.Options{Machine: &mortal{}})
	f.until("all is delivered", func() bool { return f.unacknowledged() > 1 })
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	f.dies(&mortal{})
	f.dies(&mortal{})
	f.run(service.Options{Machine: &mortal{}})
	f.expect(refused, fmt.Sprint(deadly.Sequence))
	f.expect(aborted, "g1")
}

// The first instance acknowledges none of those, so that the next cannot know at which message it died.
func TestADeadlyEventBehindOthersThatBringAboutNothingIsRefused(t *testing.T) {
	f := newFixture(t)
	aborted, refused := f.said(events.Aborted), f.said(events.EventRefused)
	for i := range 10 {
		f.lose(fmt.Sprintf("quiet%d", i))
	}
	deadly := f.lose("deadly")
	f.lose("n1")
	for range 3 {
		f.dies(&mortal{})
	}
	f.run(service.Options{Machine: &mortal{}})
	f.expect(refused, fmt.Sprint(deadly.Sequence))
	f.expect(aborted, "g1")
}

func TestAnInstanceThatDiesBeforeItHearsAnythingHidesNoDeath(t *testing.T) {
	f := newFixture(t)
	aborted, refused := f.said(events.Aborted), f.said(events.EventRefused)
	deadly := f.lose("deadly")
	f.lose("n1")
	f.dies(&mortal{})
	for range 2 {
		f.dies(&stillborn{})
		f.dies(&mortal{})
	}
	f.run(service.Options{Machine: &mortal{}})
	f.expect(refused, fmt.Sprint(deadly.Sequence))
	f.expect(aborted, "g1")
}

func TestAnEventThatAnInstanceSurvivesIsHandledHoweverManyEndAfterIt(t *testing.T) {
	service.SetRememberAfter(t, 10*time.Millisecond)
	f := newFixture(t)
	aborted := f.said(events.Aborted)
	f.lose("n1")
	for range 6 {
		crashed := f.run(service.Options{Machine: &clerk{crashes: true}})
		if err := crashed.end(); err == nil || !strings.Contains(err.Error(), "crash") {
			t.Fatalf("expected the crash, got %v", err)
		}
	}
	f.run(service.Options{Machine: &clerk{}})
	f.lose("n2")
	f.expect(aborted, "g1", "g2")
	if f.logged(events.EventRefused) > 0 {
		t.Error("an innocent event was refused")
	}
}
