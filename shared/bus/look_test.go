package bus_test

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
)

// back waits until a bus has connected again.
func back(t *testing.T, b *bus.Bus) {
	t.Helper()
	poll(t, "the connection is not back", func() bool { return b.Conn().Stats().Reconnects > 0 && b.Conn().IsConnected() })
}

// poll asks until something is so.
func poll(t *testing.T, otherwise string, is func() bool) {
	t.Helper()
	over := time.After(20 * time.Second)
	for again := time.NewTicker(5 * time.Millisecond); !is(); {
		select {
		case <-again.C:
		case <-over:
			t.Fatal(otherwise)
		}
	}
}

// TestAReconnectionWhileTheFirstLogIsLookedUpKeepsNobodyWaiting has the connection come back after it was counted.
func TestAReconnectionWhileTheFirstLogIsLookedUpKeepsNobodyWaiting(t *testing.T) {
	s := newStore(t)
	ctx, b := connect(t, s.server.URL(), cluster)
	s.exchange(func(string) error { return nil })
	back(t, b)
	_, other := connect(t, s.server.URL(), cluster)
	if err := other.Provision(ctx); err != nil {
		t.Fatal(err)
	}
	bus.NoteLog(b, other.LogMade(), 0)
	publish(t, ctx, b, lost("n1", "silent"))
}

// TestNothingIsSaidWhileItIsNotKnownWhichLogThereIs has another stream stand where the event log is to be made again.
func TestNothingIsSaidWhileItIsNotKnownWhichLogThereIs(t *testing.T) {
	s, ctx, b := newLog(t)
	_, other := connect(t, s.server.URL(), cluster)
	log := b.Lane(events.EventStream.Name)
	if err := other.JetStream().DeleteStream(ctx, log); err != nil {
		t.Fatal(err)
	}
	foreign := jetstream.StreamConfig{Name: "foreign", Subjects: events.EventStream.Subjects(cluster)}
	if _, err := other.JetStream().CreateStream(ctx, foreign); err != nil {
		t.Fatal(err)
	}
	s.exchange(func(string) error { return nil })
	back(t, b)
	said := make(chan error, 1)
	go func() {
		_, err := b.Publish(ctx, lost("n1", "silent"))
		said <- err
	}()
	poll(t, "nobody hears that it is not known which log there is", func() bool {
		select {
		case err := <-said:
			t.Fatalf("it is said, with %v", err)
		default:
		}
		return b.Trouble() != ""
	})
	back(t, other)
	if err := other.JetStream().DeleteStream(ctx, "foreign"); err != nil {
		t.Fatal(err)
	}
	if err := <-said; !errors.Is(err, bus.ErrLogReplaced) {
		t.Errorf("it is said, with %v", err)
	}
}
