package machine

import (
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

// A hub whose clock was set, or that another server leads since, logs what the service says some seconds after the time
// that the service believes it is.
func TestAMemberIsGivenUpThoughTheLogsClockWasSetForward(t *testing.T) {
	w := newWorld(t, 3)
	w.skew = 10 * time.Second
	w.deaf["n2"] = true
	w.join("n4")
	w.run()
	w.tick(time.Minute)
	if w.nodes() != "n1 n3 n4" {
		t.Fatalf("n2 does not answer, and all wait for it: nodes %q", w.nodes())
	}
}

func TestAJoinerThatNeedNotWaitIsTakenThoughTheLogsClockWasSetBack(t *testing.T) {
	w := newWorld(t, 2)
	w.transfer, w.mute[events.Scheduled] = true, true
	w.join("n3")
	w.run()
	w.join("n4")
	w.run()
	w.skew = -time.Minute
	w.mute[events.Scheduled] = false
	w.hear(events.RestorationDone, "/restorer", "r", &events.Completion{Negotiation: w.opened.Negotiation})
	w.run()
	w.tick(10 * time.Second)
	if w.nodes() != "n1 n2 n3 n4" {
		t.Fatalf("n4 asked for the first time, and waits: nodes %q", w.nodes())
	}
}
