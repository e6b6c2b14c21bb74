package agent

import (
	"strings"
	"testing"
)

func TestHeartbeatsWithoutAConnectionAreNoNewsBesideItsEnd(t *testing.T) {
	log := recorded(t)
	h := newHub(t)
	h.join("n1")
	h.server.Shutdown()
	log.expect(t, 1, `msg="disconnected from NATS" connection=n1`)
	for range 3 {
		h.sessions[0].Suspect("n2", false, "stalled") // goes out with a heartbeat, at once
	}
	if strings.Contains(log.String(), "heartbeat not sent") {
		t.Errorf("each heartbeat is said:\n%s", log.String())
	}
}
