package service_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/shared/service"
)

func TestAnEventAtWhichTheMachinePanicsIsQuarantinedAndForgotten(t *testing.T) {
	f := newFixture(t)
	aborted, refused := f.said(events.Aborted), f.said(events.EventRefused)
	first := f.run(service.Options{Machine: &clerk{}})
	f.lose("n1")
	poison := f.lose("poison")
	f.lose("n2")
	f.expect(aborted, "g1", "g2") // not g3: what the machine did before it panicked is undone
	record := f.expect(refused, fmt.Sprint(poison.Sequence))
	if kept, err := events.Open[events.Quarantine](record); err != nil || kept.Reason != bus.Poison ||
		kept.Detail != "negotiator: the machine panicked: cannot bear it" || !strings.Contains(string(kept.Excerpt), poison.ID) {
		t.Errorf("%v, kept %+v", err, kept)
	}
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	f.run(service.Options{Machine: &clerk{}})
	f.lose("n3")
	f.expect(aborted, "g3")
}

func TestAFirstEventAtWhichTheMachinePanicsLeavesItAsItBegan(t *testing.T) {
	f := newFixture(t)
	aborted := f.said(events.Aborted)
	f.run(service.Options{Machine: &clerk{}})
	f.lose("poison")
	f.lose("n1")
	f.expect(aborted, "g1")
}

// amnesiac cannot go back to its memory.
type amnesiac struct{ clerk }

func (*amnesiac) Restore([]byte) error { return errors.New("cannot read it") }

func TestAServiceWhoseMachineIsHalfChangedEnds(t *testing.T) {
	f := newFixture(t)
	half := f.run(service.Options{Machine: &amnesiac{}})
	f.lose("poison")
	if err := half.end(); err == nil || !strings.Contains(err.Error(), "cannot read it") {
		t.Fatalf("it goes on, and ends later with %v", err)
	}
}

// moody cannot bear to hear again what it could bear once.
type moody struct{ clerk }

func (m *moody) Handle(event events.Event) ([]events.Event, error) {
	if m.hearings() > 1 {
		panic("not again")
	}
	return m.clerk.Handle(event)
}

func TestAServiceWhoseMachineCannotGoBackEnds(t *testing.T) {
	f := newFixture(t)
	moody := f.run(service.Options{Machine: &moody{}})
	f.lose("n1")
	f.lose("poison")
	if err := moody.end(); err == nil || !strings.Contains(err.Error(), "not again") {
		t.Fatalf("it goes on, and ends later with %v", err)
	}
}

// nervous panics at its ticks as long as it is told to.
type nervous struct {
	clerk
	panics atomic.Bool
}

func (n *nervous) Tick(time.Time) []events.Event {
	if n.panics.Load() {
		panic("what time is it?")
	}
	return nil
}

func TestATickAtWhichTheMachinePanicsIsSaidUntilOneGoesWell(t *testing.T) {
	f := newFixture(t)
	address, machine := freeAddress(t), &nervous{}
	machine.panics.Store(true)
	f.run(service.Options{Machine: machine, Address: address, TickEvery: time.Millisecond})
	f.untilReadySays(address, "what time is it?")
	machine.panics.Store(false)
	f.untilReadySays(address, "ok")
}

// hoarder remembers more than NATS takes in one message.
type hoarder struct{ clerk }

func (h *hoarder) Snapshot() ([]byte, error) {
	if h.Count == 0 {
		return h.clerk.Snapshot()
	}
	numbers := make([]string, 300_000)
	for i := range numbers {
		numbers[i] = events.Digest(fmt.Append(nil, i))
	}
	return json.Marshal(numbers)
}

func TestAMemoryThatCannotBeStoredEndsTheServiceWithItsReason(t *testing.T) {
	service.SetRememberAfter(t, 10*time.Millisecond)
	f := newFixture(t)
	running := f.run(service.Options{Machine: &hoarder{}})
	f.lose("n1")
	if err := running.end(); !errors.Is(err, nats.ErrMaxPayload) || !strings.Contains(err.Error(), "memory of ") {
		t.Errorf("expected ErrMaxPayload and how large the memory is, got %v", err)
	}
}

func TestAServiceThatStandsStillIsNotReady(t *testing.T) {
	service.SetStandstill(t, 50*time.Millisecond)
	f := newFixture(t)
	address, machine := freeAddress(t), &clerk{waits: make(chan struct{})}
	f.run(service.Options{Machine: machine, Address: address})
	f.untilReadySays(address, "ok")
	f.lose("n1")
	f.untilReadySays(address, "computing since")
	close(machine.waits)
	f.untilReadySays(address, "ok")
}

func TestAServiceThatWaitsForAPayloadIsNotReady(t *testing.T) {
	service.SetStandstill(t, 50*time.Millisecond)
	f := newFixture(t)
	address := freeAddress(t)
	f.run(service.Options{Machine: &clerk{}, Address: address})
	f.untilReadySays(address, "ok")
	f.slip(events.EventSubject(cluster, events.NodeLost, "n1"), `{"specversion":"1.0","id":"i1","source":"/monitor",`+
		`"type":"io.reknit.node.lost.v1","subject":"n1","cluster":"test","dataref":"`+events.Digest(nil)+`"}`)
	f.untilReadySays(address, "loop: a message came")
}

// committer commits one plan for the first node that is lost.
type committer struct{ clerk }

func (c *committer) Handle(cause events.Event) ([]events.Event, error) {
	stage := events.Stage{Node: "n1", Layers: events.Range{First: 0, End: 2}}
	plan := &events.Plan{
		Cluster: cluster, Generation: 2, Parent: "sha256:parent", Policy: "repipeline", Nodes: []events.Member{{Node: "n1"}},
		Pipelines: []events.Pipeline{{MicroBatches: 1, Stages: []events.Stage{stage}}},
		Data:      events.Data{GlobalBatch: 1, MicroBatch: 1},
	}
	speaker := events.Speaker{Source: "/negotiator", Cluster: cluster}
	return []events.Event{speaker.Say(cause, events.PlanCommitted, "2", plan)}, nil
}

// The recovery is the one that deploy/README.md tells: a new stream whose sequences go on where the old one's ended.
func TestAPlanWhoseSubjectIsTakenIsInsistedOnUntilAnOperatorFreesIt(t *testing.T) {
	f := newFixture(t)
	js, address := f.bus.JetStream(), freeAddress(t)
	heard := make(chan events.Event, 1)
	stop, err := f.bus.Follow(f.ctx, events.PlanStream, events.PlanStream.Subjects(cluster), bus.New,
		func(event events.Event) { heard <- event })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	f.slip(events.PlanSubject(cluster, "2"), "a slip of the pen")
	f.run(service.Options{Machine: &committer{}, Address: address})
	f.lose("n1")
	f.untilReadySays(address, bus.ErrTaken.Error())
	plans, err := js.Stream(f.ctx, f.bus.Lane(events.PlanStream.Name))
	if err != nil {
		t.Fatal(err)
	}
	if err := plans.Purge(f.ctx, jetstream.WithPurgeSubject(events.PlanSubject(cluster, "2"))); err != nil {
		t.Fatal(err)
	}
	if plan := f.expect(heard, "2"); plan.Sequence != 2 {
		t.Errorf("at sequence %d", plan.Sequence)
	}
	f.untilReadySays(address, "ok")
}

func TestAServiceInsistsOnWhatTheFullLogDoesNotTake(t *testing.T) {
	f := newFixture(t)
	js, address := f.bus.JetStream(), freeAddress(t)
	log, err := js.Stream(f.ctx, f.bus.Lane(events.EventStream.Name))
	if err != nil {
		t.Fatal(err)
	}
	room := func(bytes uint64) {
		info, err := log.Info(f.ctx)
		if err != nil {
			t.Fatal(err)
		}
		config := info.Config
		config.MaxBytes = int64(info.State.Bytes + bytes)
		if _, err := js.UpdateStream(f.ctx, config); err != nil {
			t.Fatal(err)
		}
	}
	aborted, machine := f.said(events.Aborted), &clerk{waits: make(chan struct{})}
	f.run(service.Options{Machine: machine, Address: address})
	f.untilReadySays(address, "ok")
	f.lose("n1")
	room(100)
	close(machine.waits)
	f.untilReadySays(address, "full")
	room(1 << 20)
	f.expect(aborted, "g1")
	f.untilReadySays(address, "ok")
}

func TestTimeDoesNotPassForTheMachineWhileTheHubIsAway(t *testing.T) {
	service.SetRegroup(t, 3*time.Second) // both connections come back within that
	f := newFixture(t)
	aborted, machine := f.said(events.Aborted), &clerk{ticking: make(chan struct{}, 1)}
	f.run(service.Options{Machine: machine, TickEvery: time.Millisecond})
	ticks := func() int {
		machine.mutex.Lock()
		defer machine.mutex.Unlock()
		return machine.ticks
	}
	<-machine.ticking
	f.restart()
	away := ticks()
	for before := away - 1; before != away; away = ticks() { // one may have begun before the connection was missed
		before = away
		time.Sleep(50 * time.Millisecond)
	}
	f.lose("n1")
	f.expect(aborted, "g1")
	if now := ticks(); now != away {
		t.Errorf("%d ticks came between the outage and what was said after it", now-away)
	}
	for ticks() == away {
		<-machine.ticking // the first may be of before the outage
	}
}

// witness looks at the world at the moment at which the service asks for its memory.
type witness struct {
	clerk
	look func()
}

func (w *witness) Snapshot() ([]byte, error) {
	if w.Count == 1 {
		w.look()
	}
	return w.clerk.Snapshot()
}

func TestAMessageIsHandledItsOutputsSaidThenAcknowledgedAndRememberedLater(t *testing.T) {
	service.SetRememberAfter(t, 100*time.Millisecond)
	f := newFixture(t)
	looked := make(chan struct{})
	machine := &witness{look: func() {
		aborted := events.EventSubject(cluster, events.Aborted, "*")
		if _, said, err := f.bus.LastEvent(f.ctx, events.EventStream, aborted); !said {
			t.Errorf("the memory is asked for before the outputs are said: %v", err)
		}
		f.untilAcknowledged()
		if f.writes() > 1 {
			t.Error("remembered before it is asked for its memory")
		}
		close(looked)
	}}
	f.run(service.Options{Machine: machine})
	f.lose("n1")
	<-looked
	f.untilRemembered(2)
}

func TestAServiceThatIsKilledHearsInSilenceWhatItDoesNotRemember(t *testing.T) {
	service.SetRememberAfter(t, time.Hour)
	service.SetEndsWithin(t, 0)
	f := newFixture(t)
	aborted := f.said(events.Aborted)
	first := f.run(service.Options{Machine: &clerk{}})
	f.lose("n1")
	f.lose("poison")
	f.lose("n2")
	f.expect(aborted, "g1", "g2")
	f.untilAcknowledged()
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	f.forgetIDs()
	second := &clerk{}
	f.run(service.Options{Machine: second})
	f.lose("n3")
	f.expect(aborted, "g3")
	if heard := strings.Join(second.heard, " "); heard != "n1 poison n1 n2 n3" { // n1 again after the panic
		t.Errorf("heard %s", heard)
	}
}

// What another build's machine makes of them may be something else.
func TestAServiceThatIsToldToEndLeavesNothingToBeHeardInSilence(t *testing.T) {
	service.SetRememberAfter(t, time.Hour)
	f := newFixture(t)
	aborted := f.said(events.Aborted)
	first := f.run(service.Options{Machine: &clerk{}})
	f.lose("n1")
	f.expect(aborted, "g1")
	f.untilAcknowledged()
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	second := &clerk{}
	f.run(service.Options{Machine: second})
	f.lose("n2")
	f.expect(aborted, "g2")
	if heard := strings.Join(second.heard, " "); heard != "n2" {
		t.Errorf("heard %s, expected n2", heard)
	}
}

// With a log that keeps nothing for longer than three seconds: what is not heard within them is lost, on a busy machine too.
func TestAServiceOutlivesTheAgeOfItsLog(t *testing.T) {
	service.SetRememberAfter(t, time.Millisecond)
	f := newFixture(t)
	js := f.bus.JetStream()
	log, err := js.Stream(f.ctx, f.bus.Lane(events.EventStream.Name))
	if err != nil {
		t.Fatal(err)
	}
	config := log.CachedInfo().Config
	config.MaxAge, config.Duplicates = 3*time.Second, 3*time.Second
	if _, err := js.UpdateStream(f.ctx, config); err != nil {
		t.Fatal(err)
	}
	aborted := f.said(events.Aborted)
	first := f.run(service.Options{Machine: &clerk{}})
	f.lose("n1")
	f.expect(aborted, "g1")
	f.until("the first three events are dropped", func() bool { // the lease, n1, g1
		_, err := log.GetMsg(f.ctx, 3)
		return errors.Is(err, jetstream.ErrMsgNotFound)
	})
	f.lose("n2")
	f.expect(aborted, "g2") // the lease still fences
	f.untilAcknowledged()
	f.untilRemembered(f.writes() + 2) // a renewal may be one of them
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	f.until("all is dropped", func() bool {
		info, err := log.Info(f.ctx)
		return err == nil && info.State.Msgs == 0
	})
	f.run(service.Options{Machine: &clerk{}})
	f.lose("n3")
	f.expect(aborted, "g3")
}

func TestAMessageThatSeveralServicesRefuseIsKeptOnce(t *testing.T) {
	f := newFixture(t)
	monitor, planner := &clerk{}, &clerk{}
	f.run(service.Options{Name: "monitor", Machine: monitor})
	f.run(service.Options{Name: "planner", Machine: planner})
	f.slip(events.EventSubject(cluster, events.NodeLost, "n1"), "nonsense")
	f.lose("n2")
	f.until("both are past the refused one", func() bool { return monitor.hearings() > 0 && planner.hearings() > 0 })
	f.untilAcknowledged()
	if records := f.logged(events.EventRefused); records != 1 {
		t.Errorf("%d records of one message", records)
	}
}
