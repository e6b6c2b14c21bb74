package bus_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
)

// streamOf returns what is in a stream now.
func streamOf(t *testing.T, ctx context.Context, b *bus.Bus, name string) jetstream.StreamState {
	t.Helper()
	stream, err := b.JetStream().Stream(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	return stream.CachedInfo().State
}

// A thousand nodes that fail once a day each filled the log within 29 hours, and nothing could be said any more.
func TestOfEachNodeTheNewestEventsAreKeptAndAServiceThatMissedSomeGoesOn(t *testing.T) {
	ctx, b := newBus(t)
	quiet := publish(t, ctx, b, lost("quiet", "silent"))
	for i := range events.EventStream.Newest + 10 {
		event := lost("n1", "silent")
		event.ID = fmt.Sprint("n1-", i)
		publish(t, ctx, b, event)
	}
	if held := streamOf(t, ctx, b, b.Lane(events.EventStream.Name)).Msgs; held != uint64(events.EventStream.Newest)+1 {
		t.Errorf("%d events are kept", held)
	}
	for sequence, id := range map[uint64]string{quiet.Sequence: lost("quiet", "silent").ID, quiet.Sequence + 1: "n1-0"} {
		if holds, err := b.Holds(ctx, sequence, id, time.Now()); err != nil || !holds {
			t.Errorf("who had handled %s does not go on: %v", id, err)
		}
	}
	if holds, err := b.Holds(ctx, quiet.Sequence+1000, "n1-0", time.Now()); err != nil || holds {
		t.Errorf("a log that ends before what was handled is taken for the same: %v", err)
	}
}

// Plans of a thousand nodes filled their bucket within two days, and no other could be committed.
func TestTheNewestPlansAreKeptAndThePayloadsOfOlderOnesGoWithThem(t *testing.T) {
	ctx, b := newBus(t)
	const plans, large = 576, 80
	for generation := uint64(1); generation <= plans; generation++ {
		plan := committed(generation, "repipeline")
		if generation <= large {
			plan = committedBy(generation, 1500)
		}
		publish(t, ctx, b, plan)
	}
	if held := streamOf(t, ctx, b, b.Lane(events.PlanStream.Name)).Msgs; held != events.PlansKept {
		t.Errorf("%d plans are kept", held)
	}
	for generation, kept := range map[int]bool{plans - events.PlansKept: false, plans - events.PlansKept + 1: true, plans: true} {
		_, found, err := b.LastEvent(ctx, events.PlanStream, events.PlanSubject(cluster, fmt.Sprint(generation)))
		if err != nil || found != kept {
			t.Errorf("plan %d: found %v, %v", generation, found, err)
		}
	}
	store, err := b.JetStream().ObjectStore(ctx, b.Lane(events.PlanPayloadBucket))
	if err != nil {
		t.Fatal(err)
	}
	payloads, err := store.List(ctx)
	if err != nil || len(payloads) != large-(plans-events.PlansKept) {
		t.Errorf("%d payloads are kept, %v", len(payloads), err)
	}
}

// committedBy is a plan of so many nodes, all but one of them spares.
func committedBy(generation uint64, nodes int) events.Event {
	event := committed(generation, "repipeline")
	plan, err := events.Open[events.Plan](event)
	if err != nil {
		panic(err)
	}
	for i := range nodes {
		plan.Nodes = append(plan.Nodes, events.Member{Node: fmt.Sprint("spare-", i), Incarnation: "1", Address: "spare:1"})
	}
	return negotiator.First(time.Unix(1000, 0), "decision", events.PlanCommitted, event.Subject, &plan)
}

func TestWhatTravelsApartIsCompressed(t *testing.T) {
	ctx, b := newBus(t)
	event := committedBy(1, 1500)
	publish(t, ctx, b, event)
	if held := streamOf(t, ctx, b, "OBJ_"+b.Lane(events.PlanPayloadBucket)).Bytes; held > uint64(len(event.Data)/5) {
		t.Errorf("%d bytes of JSON take %d", len(event.Data), held)
	}
	read, found, err := b.LastEvent(ctx, events.PlanStream, events.PlanSubject(cluster, "1"))
	if err != nil || !found || string(read.Data) != string(event.Data) {
		t.Errorf("%d bytes came back, %v", len(read.Data), err)
	}
}

// A service whose acknowledgement was lost for as long as it took to trim the log ended with "no message found".
func TestWhatIsRepeatedAfterTheLogHasDroppedItWasSaid(t *testing.T) {
	ctx, b := newBus(t)
	said := publish(t, ctx, b, lost("n1", "silent"))
	for i := range events.EventStream.Newest {
		newer := lost("n1", "silent")
		newer.ID = fmt.Sprint("newer-", i)
		publish(t, ctx, b, newer)
	}
	if again := publish(t, ctx, b, lost("n1", "silent")); again != (bus.Ack{Sequence: said.Sequence, Duplicate: true}) {
		t.Errorf("said at %d, and repeated at %+v", said.Sequence, again)
	}
}
