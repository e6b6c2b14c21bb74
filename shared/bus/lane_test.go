package bus_test

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
)

// One cluster's log is full to the last byte. Another's, on the same server, takes what is said, and keeps what it had.
func TestAClusterWhoseLogIsFullTakesNoRoomOfAnother(t *testing.T) {
	url := startServer(t).URL()
	ctx, busy := connect(t, url, "busy")
	_, quiet := connect(t, url, "quiet")
	small := jetstream.StreamConfig{
		Name: busy.Lane(events.EventStream.Name), Subjects: events.EventStream.Subjects("busy"), MaxBytes: 32 << 10,
		Discard: jetstream.DiscardNew,
	}
	if _, err := busy.JetStream().CreateStream(ctx, small); err != nil {
		t.Fatal(err)
	}
	for _, b := range []*bus.Bus{busy, quiet} {
		if err := b.Provision(ctx); err != nil {
			t.Fatal(err)
		}
	}
	say := func(b *bus.Bus, cause string) error {
		state := &events.NodeState{Node: "n1", Incarnation: "a"}
		event := events.Speaker{Source: "/monitor", Cluster: b.Cluster()}.First(time.Now(), cause, events.NodeLost, "n1", state)
		_, err := b.Publish(ctx, event)
		return err
	}
	if err := say(quiet, "before"); err != nil {
		t.Fatal(err)
	}
	full := error(nil)
	for i := 0; full == nil && i < 1000; i++ {
		full = say(busy, time.Duration(i).String())
	}
	if !errors.Is(full, bus.ErrFull) {
		t.Fatalf("expected the busy cluster's log to be full, got %v", full)
	}
	if err := say(quiet, "after"); err != nil {
		t.Errorf("the quiet cluster: %v", err)
	}
	if held := streamOf(t, ctx, quiet, quiet.Lane(events.EventStream.Name)).Msgs; held != 2 {
		t.Errorf("the quiet cluster's log has %d messages, expected 2", held)
	}
	if err := quiet.Provisioned(ctx); err != nil {
		t.Errorf("the quiet cluster is not well: %v", err)
	}
}
