package changes

import (
	"fmt"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

// A user who asked for the first step again had the second one told as released.
func TestAReleaseThatIsToldAgainLeavesTheNextHoldAsItIs(t *testing.T) {
	record, said := NewRecord(0), 0
	say := func(kind events.Kind, payload events.Payload) {
		said++
		at := time.Unix(int64(said), 0)
		event := events.Speaker{Source: "/negotiator", Cluster: "c"}.First(at, fmt.Sprint(said), kind, "c", payload)
		event.Logged = at
		record.Take(event)
	}
	hold := func(number int, step uint64) {
		say(events.ClusterHeld, &events.Hold{Reason: fmt.Sprintf("step %d is held", step),
			Step: &events.HeldStep{Hold: number, Step: step, Samples: events.Samples{First: 12, Count: 12}, Died: []string{"n1", "n2"}}})
	}
	first := &events.Release{Hold: 1, Step: 30, Samples: events.Samples{First: 12, Count: 12}, Reason: "asked by eva"}
	hold(1, 30)
	say(events.StepReleased, first)
	if change := record.Changes(time.Unix(9, 0)); len(change) > 0 && change[0].Held != nil {
		t.Fatalf("the released step is held still: %+v", change[0].Held)
	}
	hold(2, 40)
	say(events.StepReleased, first) // somebody asked for the first one again
	change := record.Changes(time.Unix(9, 0))
	if len(change) != 1 || change[0].Held == nil || change[0].Held.Step.Step != 40 {
		t.Errorf("the second step is not held any more: %+v", change)
	}
}

// The history called it the leave of a node that only gave what its last script had left.
func TestAChangeThatReleasesAStepIsCalledByThat(t *testing.T) {
	change := Change{Changes: []events.Change{{Kind: events.ChangeLeave, Node: "n1"}}, Released: &events.Release{Step: 30}}
	if what := change.What(); what != "retry of step 30, leave of n1" {
		t.Error(what)
	}
	change.Changes, change.Released.Skip = nil, true
	if what := change.What(); what != "skip of step 30" {
		t.Error(what)
	}
}
