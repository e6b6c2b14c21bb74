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
	if told := record.Changes(time.Unix(99, 0)); !told[0].Began.Equal(time.Unix(4, 0)) {
		t.Errorf("the pause counts as a part of what came behind it: %+v", told[0])
	}
	say(events.TrainingStopped, "c", stopped)
	expect("told again a day later", Pending)
}

// Neither was in the history: only what led to plans was.
func TestAStopAndAResetAreToldOnceEachWithWhatWasAskedFor(t *testing.T) {
	record, said := NewRecord(1), 0
	say := func(at int64, kind events.Kind, payload events.Payload) {
		said++
		event := events.Speaker{Source: "/negotiator", Cluster: "c"}.First(time.Unix(at, 0), fmt.Sprint(said), kind, "c", payload)
		event.Logged = time.Unix(int64(100+said), 0)
		record.Take(event)
	}
	for range 2 { // again each day
		say(1, events.TrainingStopped,
			&events.JobStop{Generation: 1, Step: 40, Tier: "disk", Plan: events.Digest(nil), Reason: "the rack is moved"})
	}
	for range 2 {
		say(2, events.TrainingReset, &events.JobReset{Generation: 1, Step: 40, Reason: "a wrong setting"})
	}
	say(3, events.TrainingReset, &events.JobReset{Generation: 1, Step: 40, Reason: "longer", Snapshots: true})
	say(4, events.TrainingReset, &events.JobReset{Generation: 1, Reason: "scripts whose steps nobody knows"})
	says := fmt.Sprint(record.Halts(1))
	if expected := "[stop after step 40: the rack is moved reset at step 40, to the first one: a wrong setting " +
		"reset at step 40, to the newest snapshot: longer reset: scripts whose steps nobody knows]"; says != expected || len(record.Halts(2)) > 0 {
		t.Errorf("it tells %s", says)
	}
}
