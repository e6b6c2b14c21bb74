package bus_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
)

func TestACrashBetweenPublishAndAckRepeatsNothing(t *testing.T) {
	ctx, b := newBus(t)
	cause := publish(t, ctx, b, lost("n1", "silent"))
	crashed := consume(t, ctx, b)
	first := next(t, ctx, crashed)
	answer := negotiator.Say(first.Event, events.Aborted, "g1", &events.Abort{Negotiation: "g1", Generation: 1})
	said := publish(t, ctx, b, answer)
	crashed.Stop() // without an acknowledgement

	acknowledged, delivered, err := b.Reach(ctx, "reader")
	if err != nil || acknowledged != 0 || delivered < cause.Sequence {
		t.Fatalf("%v, acknowledged %d, delivered %d, expected nothing and %d", err, acknowledged, delivered, cause.Sequence)
	}
	successor, err := b.Consume(ctx, "successor", acknowledged, allOfTest)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(successor.Stop)
	again := next(t, ctx, successor) // at once, not after the acknowledgement's deadline
	if again.Event.Sequence != cause.Sequence {
		t.Fatalf("expected sequence %d again, got %d", cause.Sequence, again.Event.Sequence)
	}
	repeat := publish(t, ctx, b, negotiator.Say(again.Event, events.Aborted, "g1",
		&events.Abort{Negotiation: "g1", Generation: 1}))
	if !repeat.Duplicate || repeat.Sequence != said.Sequence {
		t.Errorf("expected a duplicate of %d, got %+v", said.Sequence, repeat)
	}
}

// steal takes a message that was for a reader, which is as good as lost on its way.
func steal(t *testing.T, ctx context.Context, b *bus.Bus) {
	t.Helper()
	consumer, err := b.JetStream().Consumer(ctx, b.Lane(events.EventStream.Name), "reader")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := consumer.Next(); err != nil {
		t.Fatal(err)
	}
}

// stealOne says so much that one message is stolen, and one comes behind it.
func stealOne(t *testing.T, ctx context.Context, b *bus.Bus, say func()) {
	t.Helper()
	stolen := make(chan struct{})
	go func() {
		defer close(stolen)
		steal(t, ctx, b)
	}()
	for gap := false; !gap; {
		select {
		case <-stolen:
			gap = true // what is said now is behind it
		default:
		}
		say()
	}
}

func TestWhatIsLostOnItsWayComesInItsOrder(t *testing.T) {
	ctx, b := newBus(t)
	var said []uint64
	lose := func(count int) {
		for range count {
			said = append(said, publish(t, ctx, b, lost(fmt.Sprint("n", len(said)), "silent")).Sequence)
		}
	}
	consumer := consume(t, ctx, b)
	lose(2)
	steal(t, ctx, b)
	var heard []uint64
	hear := func() bus.Delivery {
		delivery := next(t, ctx, consumer)
		heard = append(heard, delivery.Event.Sequence)
		return delivery
	}
	first := hear()
	stealOne(t, ctx, b, func() { lose(1) })
	for len(heard) < len(said) {
		hear()
	}
	if !slices.Equal(heard, said) {
		t.Errorf("heard %v, said %v", heard, said)
	}
	if acknowledged, _, err := b.Reach(ctx, "reader"); err != nil || acknowledged >= first.Event.Sequence {
		t.Errorf("%v, acknowledged %d: the reader is not done with %d", err, acknowledged, first.Event.Sequence)
	}
}

func TestAReaderWhoseConsumerTheNextDropsIsFenced(t *testing.T) {
	ctx, b := newBus(t)
	consumer := consume(t, ctx, b)
	publish(t, ctx, b, lost("n1", "silent"))
	next(t, ctx, consumer)
	if err := b.Drop(ctx, events.EventStream, "reader"); err != nil {
		t.Fatal(err)
	}
	if _, err := consumer.Next(ctx); !errors.Is(err, bus.ErrFenced) {
		t.Errorf("expected that it is fenced, got %v", err)
	}
	if err := b.Drop(ctx, events.EventStream, "reader"); err != nil {
		t.Errorf("a second time: %v", err)
	}
}

func TestAReaderThatLostAMessageAndWhoseConsumerTheNextDropsIsFenced(t *testing.T) {
	ctx, b := newBus(t)
	consumer := consume(t, ctx, b)
	last := publish(t, ctx, b, lost("n1", "silent")).Sequence
	next(t, ctx, consumer)
	stealOne(t, ctx, b, func() { last = publish(t, ctx, b, lost(fmt.Sprint("m", last), "silent")).Sequence })
	for delivered := uint64(0); delivered < last; {
		var err error
		if _, delivered, err = b.Reach(ctx, "reader"); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Drop(ctx, events.EventStream, "reader"); err != nil {
		t.Fatal(err)
	}
	var err error
	for err == nil {
		_, err = consumer.Next(ctx)
	}
	if !errors.Is(err, bus.ErrFenced) {
		t.Errorf("expected that it is fenced, got %v", err)
	}
}
