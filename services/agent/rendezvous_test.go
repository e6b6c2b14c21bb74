package agent

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

// A server that is secured cuts the whole connection of a node that says more than 1 MiB at once.
func TestWhatIsTooLargeToBeSaidIsRefusedBeforeItIsSent(t *testing.T) {
	h := newHub(t)
	h.join("n1")
	rendezvous, err := h.sessions[0].Rendezvous(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, bytes := range []int{MostRendezvousBytes, MostRendezvousBytes + 1} {
		err := rendezvous.Set(t.Context(), "peers", make([]byte, bytes))
		if fits := bytes == MostRendezvousBytes; fits != (err == nil) ||
			!fits && !strings.Contains(err.Error(), `value of "peers": expected at most 1044480 bytes, got 1044481`) {
			t.Errorf("a value of %d bytes: %v", bytes, err)
		}
	}
	if err := h.sessions[0].Relay("n2", make([]byte, MostRelayBytes)); err != nil {
		t.Error(err)
	}
	err = h.sessions[0].Relay("n2", make([]byte, MostRelayBytes+1))
	if err == nil || !strings.Contains(err.Error(), "frame: expected at most 1048576 bytes, got 1048577") {
		t.Errorf("a frame that is too large: %v", err)
	}
}

func TestWhoAwaitsAKeyInVainIsToldWhatTheHubSaid(t *testing.T) {
	h := newHub(t)
	h.join("n1")
	rendezvous, err := h.sessions[0].Rendezvous(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	await := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := rendezvous.Await(ctx, "peers")
		return err
	}
	unset := await()
	if err := h.bus.JetStream().DeleteKeyValue(t.Context(), h.bus.Lane(events.RendezvousBucket)); err != nil {
		t.Fatal(err)
	}
	for why, err := range map[string]error{"nobody has set the key": unset, "no responders": await()} {
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), why) {
			t.Errorf("expected that the time is over and %q, got %v", why, err)
		}
	}
}
