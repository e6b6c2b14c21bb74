package history

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine/changes"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

func TestThePhasesOfAChangeAddUpToTheTimeFromItsFirstSignToTheLastStep(t *testing.T) {
	log := newTeller()
	log.failure(2)
	all := log.changes()
	if len(all) != 1 || all[0].State != changes.Working {
		t.Fatalf("%+v", all)
	}
	c := all[0]
	var phases []changes.Phase
	sum := 0.0
	for _, phase := range c.Phases {
		phase.Seconds = math.Round(1e3*phase.Seconds) / 1e3
		phases, sum = append(phases, phase), sum+phase.Seconds
	}
	want := []changes.Phase{
		{Name: "notice", Seconds: 0.5, Last: "monitor"}, {Name: "wait to begin", Seconds: 0.01, Last: "negotiator"},
		{Name: "consent", Seconds: 0.03, Last: "n3"}, {Name: "plan", Seconds: 0.01, Last: "planner"},
		{Name: "restore", Seconds: 0.02, Last: "restorer"}, {Name: "transfer", Seconds: 0.23, Last: "n3"},
		{Name: "commit", Seconds: 0.01, Last: "negotiator"}, {Name: "first step", Seconds: 0.04, Last: "n3"},
	}
	for i := range max(len(phases), len(want)) {
		if i >= len(phases) || i >= len(want) || phases[i] != want[i] {
			t.Fatalf("phases %v, expected %v", phases, want)
		}
	}
	whole := log.now.Sub(log.began.Add(10 * time.Millisecond)).Seconds()
	if math.Abs(sum-whole) > 1e-9 || math.Abs(c.TotalSeconds-whole) > 1e-9 {
		t.Errorf("they are %v s and %v s, expected %v s", sum, c.TotalSeconds, whole)
	}
	if c.Slowest().Name != "notice" || c.StallSeconds != 0.3 || c.StallNode != "n2" || c.BytesMoved != 100 || c.Shape != "3" {
		t.Errorf("%+v", c)
	}
}

func TestAttemptsThatCameToNothingAreAPhaseAndSayWhy(t *testing.T) {
	log := newTeller()
	asked := log.say(events.LeaveRequested, "/user", "n4", &events.Leave{Node: "n4"})
	leave := events.Change{Kind: events.ChangeLeave, Node: "n4", Cause: asked.ID}
	log.open("a", 2, all, leave)
	log.say(events.Consented, "/node/n1", "n1", &events.Consent{Negotiation: "a", Node: "n1", Incarnation: "i", Reason: "the link is down"})
	log.say(events.NegotiationOverdue, "/negotiator", "a", &events.Overdue{Negotiation: "a", Phase: "consenting"})
	log.say(events.Aborted, "/negotiator", "a", &events.Abort{Negotiation: "a", Generation: 2, Reason: "n1 objects"})
	log.open("b", 2, all, leave)
	log.consent("b", all...)
	plan := chain(2, all[:3]...)
	log.agree("b", plan)
	log.receive("b", plan)
	log.commit("b", plan)
	log.step(2, 0, "n1", "n2")
	c := log.changes()[0]
	if c.State != changes.Committed {
		t.Errorf("it is %s, expected committed: n3 has not completed a step", c.State)
	}
	if len(c.Attempts) != 2 || c.Phases[1].Name != "earlier attempts" || math.Abs(c.Phases[1].Seconds-0.04) > 1e-9 {
		t.Fatalf("%+v", c)
	}
	first := c.Attempts[0]
	if first.Ended != "n1 objects" || first.Phase != "consenting" || first.Overdue != 1 || first.Said[0] != "n1 objects: the link is down" {
		t.Errorf("%+v", first)
	}
}

func TestAGenerationOfWhichOnlyAFirstStepIsKnownIsNoChange(t *testing.T) {
	l := newTeller()
	l.failure(2)
	known := len(l.changes())
	if l.step(1, 0, "n1"); len(l.changes()) != known {
		t.Errorf("a node trains under generation 1, of which the log keeps nothing else: %+v", l.changes())
	}
}

func TestAJoinOutlivesTheProcessBefore(t *testing.T) {
	log := newTeller()
	log.failure(1)
	log.open("g2", 2, append(all[:3:3], "n9"), events.Change{Kind: events.ChangeJoin, Node: "n9"})
	log.say(events.NodeLost, "/monitor", "n9", &events.NodeState{Node: "n9", Incarnation: "before", Reason: "silent"})
	log.say(events.Aborted, "/negotiator", "g2", &events.Abort{Negotiation: "g2", Generation: 2, Reason: "the changes are others now"})
	if state := log.changes()[1].State; state != changes.Pending {
		t.Errorf("the join of n9, which lives, is %s", state)
	}
}

func TestWhatIsNotDoneYetCountsUntilNow(t *testing.T) {
	log := newTeller()
	log.failure(1)
	log.open("g2", 2, all[:3], events.Change{Kind: events.ChangeJoin, Node: "n9"})
	opened := log.now
	log.say(events.Aborted, "/negotiator", "g2", &events.Abort{Negotiation: "g2", Generation: 2, Reason: "the changes are others now"})
	log.pause(time.Minute)
	pending := log.changes()[1]
	if pending.State != changes.Pending || math.Abs(pending.TotalSeconds-log.now.Sub(opened).Seconds()) > 1e-9 {
		t.Errorf("expected it to be pending for a minute, got %+v", pending)
	}
}

func TestAFailureIsNotCountedFromALeaveThatWasRefusedBefore(t *testing.T) {
	log := newTeller()
	log.failure(1)
	log.open("g2", 2, all[:3], events.Change{Kind: events.ChangeLeave, Node: "n2"})
	log.say(events.Aborted, "/negotiator", "g2", &events.Abort{Negotiation: "g2", Generation: 2, Reason: "only n2 has layer 1"})
	log.say(events.MembershipRefused, "/negotiator", "n2",
		&events.Refusal{Node: "n2", Refused: events.ChangeLeave, Reason: "only n2 has layer 1"})
	log.pause(time.Hour)
	lost := log.say(events.NodeLost, "/monitor", "n3",
		&events.NodeState{Node: "n3", Incarnation: "i", Reason: "no heartbeat", SilentSeconds: 0.5})
	log.open("again", 2, all[:2], events.Change{Kind: events.ChangeFailure, Node: "n3", Cause: lost.ID})
	log.say(events.Aborted, "/negotiator", "again", &events.Abort{Negotiation: "again", Generation: 2, Reason: "nobody has layer 2"})
	log.open("more", 2, all[:2], events.Change{Kind: events.ChangeFailure, Node: "n3", Cause: lost.ID})
	c := log.changes()[1]
	if began := lost.Logged.Add(-500 * time.Millisecond); !c.Began.Equal(began) || c.TotalSeconds > 1 || len(c.Attempts) != 3 {
		t.Errorf("it began %s and took %.1f s, expected %s and less than a second, in all 3 attempts: %+v", c.Began, c.TotalSeconds,
			began, c)
	}
}

func TestThatOthersWaitedForATrainerThatHangsCountsAsNoticed(t *testing.T) {
	log := newTeller()
	log.failure(1)
	lost := log.say(events.NodeLost, "/monitor", "n3",
		&events.NodeState{Node: "n3", Incarnation: "i", Reason: "its trainer hangs", WaitedSeconds: 2.5})
	log.open("again", 2, all[:2], events.Change{Kind: events.ChangeFailure, Node: "n3", Cause: lost.ID})
	c := log.changes()[1]
	if c.Phases[0].Name != changes.Notice || c.Phases[0].Seconds != 2.5 || c.TotalSeconds < 2.5 {
		t.Errorf("%+v", c)
	}
}

func TestEachPhaseSaysWhomItWaitsFor(t *testing.T) {
	log := newTeller()
	plan := chain(1, all...)
	expect := func(phase string, awaits ...string) {
		t.Helper()
		attempt := log.changes()[0].Attempts[0]
		if attempt.Phase != phase || strings.Join(attempt.Awaits, " ") != strings.Join(awaits, " ") {
			t.Errorf("%s, waiting for %v, expected %s and %v", attempt.Phase, attempt.Awaits, phase, awaits)
		}
	}
	say := func(kind events.Kind, payload events.Payload) { log.say(kind, "/negotiator", "g", payload) }
	log.open("g", 1, all, events.Change{Kind: events.ChangeJoin, Node: "n4"})
	say(events.PlanRequested, &events.PlanRequest{Negotiation: "g", Cluster: "c", Generation: 1})
	log.consent("g", "n2")
	expect("consenting", "n1", "n3", "n4")
	log.consent("g", "n1", "n3", "n4")
	expect("planning", "planner")
	say(events.RestorationAsked, &events.RestorationRequest{Negotiation: "g"})
	expect("restoring", "restorer")
	log.say(events.RestorationPlanned, "/restorer", "g", &events.Restoration{Negotiation: "g", Plan: plan})
	say(events.PreCopyStarted, &events.PreCopyStart{Negotiation: "g"})
	expect("pre-copying", "n4")
	say(events.Prepared, &events.Preparation{Negotiation: "g", Generation: 1})
	log.say(events.Promised, "/node/n1", "n1", &events.Promise{Negotiation: "g", Node: "n1", StopStep: 5})
	expect("promising", "n2", "n3", "n4")
	say(events.Scheduled, &events.Schedule{Negotiation: "g", Plan: plan})
	expect("transferring", "n4")
	log.receive("g", plan)
	expect("transferring")
}

func TestThePhasesAreCalledWhatTheNegotiatorCallsThem(t *testing.T) {
	phases := []string{changes.Consenting, changes.Planning, changes.Restoring, changes.PreCopying, changes.Promising, changes.Transferring,
		changes.Stopping}
	if len(protocol.Waits) != len(phases) {
		t.Errorf("the negotiator has %d phases, expected %v", len(protocol.Waits), phases)
	}
	for _, phase := range phases {
		if _, known := protocol.Waits[protocol.Phase(phase)]; !known {
			t.Errorf("the negotiator has no phase %q", phase)
		}
	}
}
