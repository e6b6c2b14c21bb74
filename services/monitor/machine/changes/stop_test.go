package changes

import (
	"fmt"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

// A stop was told as pending for as long as the job was stopped.
func TestAStopIsDoneWithOnceTrainingHasStoppedAndTheNextNegotiationIsAnother(t *testing.T) {
	record, said := NewRecord(1), 0
	say := func(kind events.Kind, subject string, payload events.Payload) {
		said++
		at := time.Unix(int64(said), 0)
		event := events.Speaker{Source: "/negotiator", Cluster: "c"}.First(at, fmt.Sprint(said), kind, subject, payload)
		event.Logged = at
		record.Take(event)
	}
	expect := func(when, state string) {
		t.Helper()
		if told := record.Changes(time.Unix(99, 0)); len(told) != 1 || told[0].State != state {
			t.Errorf("%s: expected %s, got %+v", when, state, told)
		}
	}
	open := func(negotiation, kind string, stop bool) {
		say(events.NegotiationOpened, negotiation, &events.Opening{Negotiation: negotiation, Generation: 2, Stop: stop,
			Changes: []events.Change{{Kind: kind, Node: "n1"}}})
	}
	abort := func(negotiation string) {
		say(events.Aborted, negotiation, &events.Abort{Negotiation: negotiation, Generation: 2, Reason: "training has stopped"})
	}
	stopped := &events.JobStop{Generation: 1, Step: 40, Tier: "disk", Plan: events.Digest(nil)}
	open("a", events.ChangeLeave, true)
	expect("while all write their snapshot", Negotiating)
	say(events.TrainingStopped, "c", stopped)
	abort("a")
	expect("once it has stopped", Stopped)
	open("b", events.ChangeJoin, false)
	expect("once scripts are started again", Negotiating)
	abort("b")
	say(events.TrainingStopped, "c", stopped)
	expect("told again a day later", Pending)
}
