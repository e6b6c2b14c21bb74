package service_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/shared/service"
)

func TestACrashBetweenPublishAndAcknowledgementRepeatsNothing(t *testing.T) {
	service.SetRememberAfter(t, 10*time.Millisecond)
	f := newFixture(t)
	aborted := f.said(events.Aborted)
	f.lose("n1")
	crashed := f.run(service.Options{Machine: &clerk{crashes: true}})
	first := f.expect(aborted, "g1")
	if err := crashed.end(); err == nil || !strings.Contains(err.Error(), "crash") {
		t.Fatalf("expected the crash, got %v", err)
	}
	again := &clerk{}
	f.run(service.Options{Machine: again})
	f.lose("n2")
	second := f.expect(aborted, "g2") // and not g1 once more
	if second.Sequence <= first.Sequence || again.Count != 2 {
		t.Errorf("count %d, g1 at %d, g2 at %d", again.Count, first.Sequence, second.Sequence)
	}
}

func TestAServiceRestartedOnItsSnapshotGoesOnWhereItWas(t *testing.T) {
	service.SetRememberAfter(t, time.Millisecond)
	f := newFixture(t)
	aborted := f.said(events.Aborted)
	first := f.run(service.Options{Machine: &clerk{}})
	f.lose("n1")
	f.lose("n2")
	f.expect(aborted, "g1", "g2")
	f.untilRemembered(2)
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	f.lose("n3")
	restarted := &clerk{}
	second := f.run(service.Options{Machine: restarted})
	f.expect(aborted, "g3")
	if err := second.stop(); err != nil {
		t.Fatal(err)
	}
	if before := slices.Index(restarted.heard, "n3"); before > 1 {
		t.Errorf("expected to hear n3 only (and n2 where the stop cut its acknowledgement), heard %v", restarted.heard)
	}
}

func TestAnInstanceThatWasPausedIsEndedByItsSuccessor(t *testing.T) {
	service.SetStandstill(t, 100*time.Millisecond)
	f := newFixture(t)
	aborted, leases := f.said(events.Aborted), f.said(events.LeaseTaken)
	paused := &clerk{waits: make(chan struct{})}
	address := freeAddress(t)
	old := f.run(service.Options{Machine: paused, Address: address})
	f.expect(leases, "negotiator")
	f.lose("n1")
	f.untilReadySays(address, "computing since")
	f.run(service.Options{Machine: &clerk{}})
	f.expect(leases, "negotiator")
	close(paused.waits)
	f.expect(aborted, "g1")
	if err := old.end(); !errors.Is(err, bus.ErrFenced) {
		t.Errorf("expected ErrFenced, got %v", err)
	}
	f.lose("n2")
	f.expect(aborted, "g2")
}

func TestASecondInstanceStandsByWhileTheFirstWorks(t *testing.T) {
	f := newFixture(t)
	aborted, leases := f.said(events.Aborted), f.said(events.LeaseTaken)
	first := f.run(service.Options{Machine: &clerk{}})
	f.expect(leases, "negotiator")
	f.lose("n1")
	f.expect(aborted, "g1")
	address := freeAddress(t)
	f.run(service.Options{Machine: &clerk{}, Address: address})
	f.untilReadySays(address, "standby")
	f.lose("n2")
	f.expect(aborted, "g2")
	if len(leases) != 0 {
		t.Error("the lease was taken from an instance that works")
	}
	if err := first.stop(); err != nil {
		t.Errorf("the first was ended: %v", err)
	}
	f.expect(leases, "negotiator")
	f.lose("n3")
	f.expect(aborted, "g3")
}

func TestAServiceOutlivesARestartOfTheServer(t *testing.T) {
	f := newFixture(t)
	aborted := f.said(events.Aborted)
	machine := &clerk{}
	running := f.run(service.Options{Machine: machine, TickEvery: time.Millisecond})
	f.lose("n1")
	f.expect(aborted, "g1")
	f.restart()
	f.lose("n2")
	f.expect(aborted, "g2")
	if err := running.stop(); err != nil || machine.Count != 2 {
		t.Errorf("count %d, %v", machine.Count, err)
	}
}

func TestALogThatWentBackwardsEndsTheService(t *testing.T) {
	service.SetRememberAfter(t, time.Millisecond)
	f := newFixture(t)
	before := f.run(service.Options{Machine: &clerk{}})
	aborted := f.said(events.Aborted)
	f.lose("n1")
	f.lose("n2")
	f.expect(aborted, "g1", "g2")
	f.untilRemembered(2)
	if err := before.stop(); err != nil {
		t.Fatal(err)
	}
	js := f.bus.JetStream()
	if err := js.DeleteStream(f.ctx, f.bus.Lane(events.EventStream.Name)); err != nil {
		t.Fatal(err)
	}
	if err := f.bus.Provision(f.ctx); err != nil {
		t.Fatal(err)
	}
	options := service.Options{Name: "negotiator", Bus: f.connect(), Machine: &clerk{}}
	if err := service.Run(f.ctx, options); !errors.Is(err, service.ErrLogWentBackwards) {
		t.Errorf("expected ErrLogWentBackwards, got %v", err)
	}
}

// The memory says more than it holds: how far an instance came beyond it.
func TestALogThatWentBackBehindTheMemoryEndsTheService(t *testing.T) {
	f := newFixture(t)
	aborted := f.said(events.Aborted)
	f.lose("n1")
	f.lose("n2")
	first := f.run(service.Options{Machine: &clerk{}})
	f.expect(aborted, "g1", "g2")
	f.untilAcknowledged()
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	second := f.run(service.Options{Machine: &clerk{}})
	f.untilRemembered(3) // two signatures, and how far the first came
	if err := second.stop(); err != nil {
		t.Fatal(err)
	}
	if err := f.bus.JetStream().DeleteStream(f.ctx, f.bus.Lane(events.EventStream.Name)); err != nil {
		t.Fatal(err)
	}
	if err := f.bus.Provision(f.ctx); err != nil {
		t.Fatal(err)
	}
	options := service.Options{Name: "negotiator", Bus: f.connect(), Machine: &clerk{}}
	if err := service.Run(f.ctx, options); !errors.Is(err, service.ErrLogWentBackwards) {
		t.Errorf("expected ErrLogWentBackwards, got %v", err)
	}
}

// What the machine hears, the log remembers: to write its memory for each such word would cost more than the word.
func TestTheMemoryIsWrittenAtOnceOnlyForWhatTheMachineDoesNotHear(t *testing.T) {
	service.SetRememberAfter(t, time.Hour)
	f := newFixture(t)
	lost := monitor.First(time.Now(), "1", events.NodeLost, "n1", &events.NodeState{Node: "n1", Incarnation: "a"})
	suspected := monitor.First(time.Now(), "2", events.NodeSuspected, "n1", &events.NodeState{Node: "n1", Incarnation: "a"})
	inputs := make(chan func(time.Time) []events.Event)
	f.run(service.Options{Name: "monitor", Machine: listener{}, Inputs: inputs})
	say := func(said ...events.Event) {
		inputs <- func(time.Time) []events.Event { return said }
		inputs <- func(time.Time) []events.Event { return nil } // all that was brought about is done
	}
	say()
	before := f.writes()
	say(lost)
	if now := f.writes(); now != before {
		t.Errorf("the memory was written %d times for what the machine hears", now-before)
	}
	say(lost, suspected)
	if now := f.writes(); now != before+1 {
		t.Errorf("the memory was written %d times for what the machine does not hear", now-before)
	}
}

func TestTimePassesOnlyWhenTheBacklogIsHandled(t *testing.T) {
	f := newFixture(t)
	for i := range 20 {
		f.lose(fmt.Sprintf("n%d", i))
	}
	machine := &clerk{}
	inputs, handledBefore := make(chan func(time.Time) []events.Event, 1), make(chan int, 1)
	inputs <- func(time.Time) []events.Event { handledBefore <- machine.Count; return nil }
	f.run(service.Options{Machine: machine, Inputs: inputs, TickEvery: time.Microsecond})
	select {
	case count := <-handledBefore:
		if count != 20 {
			t.Errorf("a door opened after %d of 20 events", count)
		}
	case <-f.ctx.Done():
		t.Fatal("the door never opened")
	}
}

func TestAnEventWithoutSenseIsNotRetried(t *testing.T) {
	f := newFixture(t)
	aborted := f.said(events.Aborted)
	machine := &clerk{}
	running := f.run(service.Options{Machine: machine})
	f.lose("absurd")
	f.lose("n1")
	f.expect(aborted, "g1")
	if err := running.stop(); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(machine.heard, " "); got != "absurd n1" {
		t.Errorf("heard %s", got)
	}
}

func TestOneTraceHoldsOneChange(t *testing.T) {
	f := newFixture(t)
	f.run(service.Options{Machine: &clerk{}})
	cause := f.lose("n1")
	answer := f.expect(f.said(events.Aborted), "g1")
	traceID, spanID := sha256.Sum256([]byte(cause.ID)), sha256.Sum256([]byte("negotiator|"+cause.ID))
	want := fmt.Sprintf("00-%s-%s-01", hex.EncodeToString(traceID[:16]), hex.EncodeToString(spanID[:8]))
	if answer.Traceparent != want {
		t.Errorf("traceparent %s, expected %s", answer.Traceparent, want)
	}
	if answer.Cause != cause.ID {
		t.Errorf("cause %s, expected %s", answer.Cause, cause.ID)
	}
}

func TestEachKindOfRefusalIsCountedAndQuarantinedOnce(t *testing.T) {
	f := newFixture(t)
	address := freeAddress(t)
	machine := &clerk{}
	refused, aborted := f.said(events.EventRefused), f.said(events.Aborted)
	f.run(service.Options{Machine: machine, Address: address})
	const data = `,"data":{"node":"n1","incarnation":"a","reason":"","silentSeconds":0,"failuresPerNodeSecond":0}}`
	good := `{"specversion":"1.0","id":"i1","source":"/monitor","type":"io.reknit.node.lost.v1","subject":"n1","cluster":"test"` + data
	bad := map[string]string{
		bus.Oversized:      strings.Replace(good, `"reason":""`, `"reason":"`+strings.Repeat("x", 70<<10)+`"`, 1),
		bus.Malformed:      good[1:],
		bus.UnknownVersion: strings.Replace(good, ".v1", ".v7", 1),
		bus.WrongCluster:   strings.Replace(good, `"cluster":"test"`, `"cluster":"toast"`, 1),
		bus.WrongSource:    strings.Replace(good, "/monitor", "/node/n1", 1),
		bus.Invalid:        strings.Replace(good, `"incarnation":"a"`, `"incarnation":""`, 1),
	}
	for reason, message := range bad {
		ack, err := f.bus.JetStream().Publish(f.ctx, events.EventSubject(cluster, events.NodeLost, "n1"), []byte(message))
		if err != nil {
			t.Fatal(err)
		}
		event := f.expect(refused, fmt.Sprint(ack.Sequence))
		kept, err := events.Open[events.Quarantine](event)
		if err != nil || kept.Reason != reason || kept.Bytes != len(message) ||
			string(kept.Excerpt) != message[:min(len(message), events.QuarantineBytes)] {
			t.Errorf("%s: %v, kept %s: %s, %d bytes", reason, err, kept.Reason, kept.Detail, kept.Bytes)
		}
	}
	f.lose("n2")
	f.expect(aborted, "g1")
	if len(refused) != 0 || len(machine.heard) != 1 {
		t.Errorf("heard %v, %d more refusals", machine.heard, len(refused))
	}
	page := fetch(t, "http://"+address+"/metrics")
	for reason := range bad {
		if !counted(page, "reknit_messages_refused_total", `reason="`+reason+`"`, `service="negotiator"`) {
			t.Errorf("%s was not counted", reason)
		}
	}
}

func TestAServiceSaysWhetherItIsReady(t *testing.T) {
	f := newFixture(t)
	address := freeAddress(t)
	if err := service.Healthcheck(f.ctx, address, ""); err == nil {
		t.Error("nobody is there yet")
	}
	aborted := f.said(events.Aborted)
	f.run(service.Options{Machine: &clerk{}, Address: address})
	f.lose("n1")
	f.expect(aborted, "g1")
	for err := service.Healthcheck(f.ctx, address, ""); err != nil; err = service.Healthcheck(f.ctx, address, "") {
		if f.ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	if err := f.bus.JetStream().DeleteObjectStore(f.ctx, f.bus.Lane(events.ShardBucket)); err != nil {
		t.Fatal(err)
	}
	if page := fetch(t, "http://"+address+"/readyz"); !strings.Contains(page, events.ShardBucket) {
		t.Errorf("expected the missing bucket's name, got %q", page)
	}
	if page := fetch(t, "http://"+address+"/healthz"); page != "ok\n" {
		t.Errorf("the process lives, got %q", page)
	}
}

func TestVariablesHaveUnitAndReason(t *testing.T) {
	type config struct{ service.Common }
	all := service.Variables(config{})
	if len(all) != 5 {
		t.Errorf("expected the five common variables, got %v", all)
	}
	for _, v := range all {
		if v.Unit == "" || v.Reason == "" {
			t.Errorf("%s: expected a unit and a reason", v.Name)
		}
	}
}
