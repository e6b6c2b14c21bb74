package agent

import (
	"strconv"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

func TestANodeWhoseRequestIsRefusedHearsSoFromServicesOnly(t *testing.T) {
	before := refusalWaits
	refusalWaits = []time.Duration{10 * time.Millisecond, 10 * time.Millisecond, time.Second}
	t.Cleanup(func() { refusalWaits = before })
	log, h := recorded(t), newHub(t)
	h.join("n1")
	join, found, err := h.bus.LastEvent(t.Context(), events.EventStream, events.EventSubject("c", events.JoinRequested, "n1"))
	if err != nil || !found {
		t.Fatal(found, err)
	}
	sequence := strconv.FormatUint(join.Sequence, 10)
	lie := events.EventSubject("c", events.EventRefused, sequence)
	if _, err := h.bus.JetStream().Publish(t.Context(), lie, []byte(`{"source":"/node/eve","data":{"reason":"a lie"}}`)); err != nil {
		t.Fatal(err)
	}
	h.say(events.EventRefused, sequence, &events.Quarantine{Reason: "invalid", Detail: "memoryBytes: expected less"})
	log.expect(t, 1, "the services refuse this node's request to join: invalid: memoryBytes: expected less")
}
