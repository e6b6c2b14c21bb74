package agent

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
)

func TestWhatFindsTheLogFullIsSaidOnceThereIsRoom(t *testing.T) {
	h := newHub(t)
	h.join("n1")
	session := h.sessions[0]
	profiled := session.machine.Profiled(time.Now(), events.Profile{Step: 1, SpeedFactor: 1})
	room := h.bound(1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if session.say(ctx, profiled); ctx.Err() == nil {
		t.Fatal("given up while the log was full")
	}
	go session.say(t.Context(), profiled)
	h.bound(room)
	await[events.Profile](h, events.NodeProfiled)
}

// bound lets the log take nothing beyond so many bytes, and returns how many it took before.
func (h *hub) bound(bytes int64) (before int64) {
	h.t.Helper()
	js, err := jetstream.New(h.bus.Conn())
	if err != nil {
		h.t.Fatal(err)
	}
	log, err := js.Stream(h.t.Context(), h.bus.Lane(events.EventStream.Name))
	if err != nil {
		h.t.Fatal(err)
	}
	config := log.CachedInfo().Config
	before, config.MaxBytes = config.MaxBytes, bytes
	if _, err := js.UpdateStream(h.t.Context(), config); err != nil {
		h.t.Fatal(err)
	}
	return before
}
