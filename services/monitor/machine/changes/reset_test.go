package changes

import (
	"fmt"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

// Each day the reason of the wait was lost, until the hold was tried again: half an hour.
func TestAResetThatIsToldAgainLeavesTheHoldBehindItAsItIs(t *testing.T) {
	record, said := NewRecord(7), 0
	say := func(kind events.Kind, payload events.Payload) {
		said++
		at := time.Unix(int64(said), 0)
		event := events.Speaker{Source: "/negotiator", Cluster: "c"}.First(at, fmt.Sprint(said), kind, "c", payload)
		event.Logged = at
		record.Take(event)
	}
	expect := func(when, reason string) {
		t.Helper()
		told := ""
		for _, change := range record.Changes(time.Unix(99, 0)) {
			if change.Held != nil {
				told = change.Held.Reason
			}
		}
		if told != reason {
			t.Errorf("%s the cluster is held for %q, expected %q", when, told, reason)
		}
	}
	reset := events.JobReset{Generation: 7, Reason: "a wrong setting", Step: 40}
	say(events.ClusterHeld, &events.Hold{Reason: "its state is gone"})
	say(events.TrainingReset, &reset)
	expect("after the reset", "")
	say(events.ClusterHeld, &events.Hold{Reason: "waiting for more nodes: 1 joined"})
	say(events.TrainingReset, &reset)
	expect("told again", "waiting for more nodes: 1 joined")
	from := reset
	from.Snapshots = true
	say(events.TrainingReset, &from)
	expect("after another one", "")
}
