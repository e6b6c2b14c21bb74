package agent

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
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

func TestAHeartbeatTellsWhyAScriptThatKnowsNothingOfItsAgentDoesNotGetOn(t *testing.T) {
	h := newHub(t)
	h.join("n1")
	heard, err := h.bus.Conn().SubscribeSync(events.PulseSubject("c", "n1"))
	if err != nil {
		t.Fatal(err)
	}
	next := func(isAwaited func(*events.Script) bool) {
		t.Helper()
		for until := time.Now().Add(10 * time.Second); time.Now().Before(until); {
			message, err := heard.NextMsg(10 * time.Second)
			if err != nil {
				t.Fatal(err)
			}
			var pulse events.Pulse
			if err := json.Unmarshal(message.Data, &pulse); err != nil || pulse.Validate() != nil {
				t.Fatal(err, pulse.Validate())
			}
			if isAwaited(pulse.Script) {
				return
			}
		}
		t.Fatal("no heartbeat tells it")
	}
	h.sessions[0].Scripted(&events.Script{RestsSeconds: 61})
	next(func(script *events.Script) bool { return script != nil && script.RestsSeconds == 61 })
	h.sessions[0].Scripted(nil)
	next(func(script *events.Script) bool { return script == nil })
}

// Who joined and hung in its first step was not found: it passed for one in an old step.
func TestAHeartbeatTellsTheStepThatThePlanGoesOnFrom(t *testing.T) {
	h := newHub(t)
	member := h.join("n1")
	heard, err := h.bus.Conn().SubscribeSync(events.PulseSubject("c", "n1"))
	if err != nil {
		t.Fatal(err)
	}
	plan := replicas(1, "", []events.Member{member}, "n1")
	plan.ResumeStep = 7
	h.say(events.PlanCommitted, "1", &plan)
	if _, err := h.sessions[0].Boundary(t.Context(), 7, &kernel{}); err != nil {
		t.Fatal(err)
	}
	var pulse events.Pulse
	for until := time.Now().Add(10 * time.Second); pulse.Generation == 0 && time.Now().Before(until); {
		message, err := heard.NextMsg(10 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(message.Data, &pulse); err != nil {
			t.Fatal(err)
		}
	}
	if pulse.Step != 7 {
		t.Errorf("it tells of step %d, expected 7", pulse.Step)
	}
}
