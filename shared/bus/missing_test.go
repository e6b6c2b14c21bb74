package bus_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
)

// dangle logs an event that names a payload which is nowhere, and returns its sequence.
func dangle(t *testing.T, ctx context.Context, b *bus.Bus, source string, kind events.Kind) uint64 {
	t.Helper()
	message := fmt.Sprintf(`{"specversion":"1.0","id":"i1","source":%q,"type":%q,"subject":"n1","cluster":"test","dataref":%q}`,
		source, kind.Type(), events.Digest(nil))
	ack, err := b.JetStream().Publish(ctx, events.EventSubject(cluster, kind, "n1"), []byte(message))
	if err != nil {
		t.Fatal(err)
	}
	return ack.Sequence
}

// In most of these a reader would wait for an hour.

func TestANameOfNothingThatANodeSaysIsNotWaitedForAsAServicesIs(t *testing.T) {
	bus.SetUnreadableAfter(t, time.Hour)
	bus.SetMissingAfter(t, time.Millisecond)
	ctx, b := newBus(t)
	dangle(t, ctx, b, "/node/n1", events.LeaveRequested)
	publish(t, ctx, b, lost("n1", "silent"))
	expectRefusalAndTheNext(t, ctx, b)
}

func TestWhatAServiceHasRefusedIsWaitedForByNobody(t *testing.T) {
	bus.SetUnreadableAfter(t, time.Nanosecond) // the log is asked first
	ctx, b := newBus(t)
	sequence := strconv.FormatUint(dangle(t, ctx, b, "/monitor", events.NodeLost), 10)
	negotiator := events.Speaker{Source: "/negotiator", Cluster: cluster}
	publish(t, ctx, b, negotiator.First(time.Now(), "x", events.EventRefused, sequence, &events.Quarantine{Reason: bus.Unreadable}))
	if refused := next(t, ctx, consume(t, ctx, b)); refused.Refusal == nil || !strings.Contains(refused.Refusal.Detail, "refused before") {
		t.Fatalf("expected a payload that was refused before, got %+v", refused.Refusal)
	}
}

func TestWhoReadsTheLogForAPersonWaitsForNoMinute(t *testing.T) {
	bus.SetUnreadableAfter(t, time.Hour)
	bus.SetMissingAfter(t, time.Millisecond)
	ctx, b := newBus(t)
	dangle(t, ctx, b, "/monitor", events.NodeLost)
	end := publish(t, ctx, b, lost("n2", "silent")).Sequence
	var heard []string
	err := b.Read(ctx, events.EventStream, events.EventStream.Subjects(cluster), 0, end, func(event events.Event) {
		heard = append(heard, event.Subject)
	})
	if err != nil || len(heard) != 1 || heard[0] != "n2" {
		t.Errorf("heard %v, %v", heard, err)
	}
}

func TestAReaderThatHasThePayloadAlreadyAsksNobodyForIt(t *testing.T) {
	bus.SetUnreadableAfter(t, time.Hour)
	ctx, b := newBus(t)
	said := large("first")
	publish(t, ctx, b, said)
	purge(t, ctx, b, events.PayloadBucket, ">")
	consumer := consume(t, ctx, b)
	consumer.Kept = map[uint64][]byte{1: said.Data}
	if heard := next(t, ctx, consumer); heard.Refusal != nil || !heard.Apart || string(heard.Event.Data) != string(said.Data) {
		t.Errorf("%d bytes, refusal %+v", len(heard.Event.Data), heard.Refusal)
	}
}
