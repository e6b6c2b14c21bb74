package agent

import (
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

// replays has a node hear, a minute late, the last event of a kind that was said before it listened.
func (h *hub) replays(kind events.Kind) {
	h.t.Helper()
	event, found, err := h.bus.LastEvent(h.t.Context(), events.EventStream, events.EventSubject("c", kind, "c"))
	if err != nil || !found {
		h.t.Fatal(found, err)
	}
	event.Logged = event.Logged.Add(-time.Minute)
	h.sessions[0].hear(event)
}

// A node that was frozen woke after a reset, heard the stop before it, and ended: training was to go on from there.
func TestANodeThatWakesAfterAStopThatIsOverAsksForAPlaceAgain(t *testing.T) {
	for _, isOver := range []bool{true, false} {
		h := newHub(t)
		h.say(events.TrainingStopped, "c", &events.JobStop{
			Generation: 1, Step: 7, Tier: "disk", Plan: events.Digest(nil), Reason: "the rack is moved"})
		if isOver {
			h.say(events.TrainingReset, "c", &events.JobReset{Generation: 1, Step: 7, Reason: "another job"})
		}
		before := h.join("n1")
		h.stands()
		h.replays(events.TrainingStopped)
		if ended := h.sessions[0].Ready(); (ended == nil) != isOver {
			t.Fatalf("over: %t, it has ended: %v", isOver, ended)
		}
		if isOver {
			if again := await[events.Join](h, events.JoinRequested); again.Incarnation == before.Incarnation {
				t.Errorf("it asks as %s again", again.Incarnation)
			}
		}
	}
}

func TestANodeThatWakesAfterAHoldThatIsOverDoesNotTellOfIt(t *testing.T) {
	for _, isOver := range []bool{true, false} {
		log, h := recorded(t), newHub(t)
		h.hold()
		if isOver {
			h.say(events.TrainingReset, "c", &events.JobReset{Generation: 1, Step: 7, Reason: "another job"})
		}
		h.join("n1")
		h.replays(events.ClusterHeld)
		if told := strings.Contains(log.String(), "training waits"); told == isOver {
			t.Errorf("over: %t, it tells:\n%s", isOver, log)
		}
	}
}
