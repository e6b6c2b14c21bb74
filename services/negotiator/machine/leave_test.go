package machine

import (
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

func TestANodeIsNotNeededAfterItsDeadlineUnlessItIsTheLastHolder(t *testing.T) {
	for _, last := range []bool{false, true} {
		w := newWorld(t, 3)
		if last {
			w = oneHolder(t)
		}
		w.mute[events.PlanRequested] = true
		w.hear(events.LeaveRequested, "/node/n3", "n3", &events.Leave{Node: "n3", DeadlineSeconds: 30})
		w.run()
		w.tick(29 * time.Second)
		if len(w.refusals("n3")) > 0 {
			t.Fatal("given up before its deadline")
		}
		w.tick(2 * time.Second)
		if given := len(w.refusals("n3")) == 1; given == last {
			t.Errorf("last holder %v: given up %v", last, given)
		}
	}
}

func TestANodeWhoseLeaveWasRefusedIsNotGivenUpAtTheDeadlineThatItHad(t *testing.T) {
	w := newWorld(t, 3)
	w.mute[events.PlanRequested] = true
	w.hear(events.LeaveRequested, "/node/n3", "n3", &events.Leave{Node: "n3", DeadlineSeconds: 30})
	w.run()
	w.hear(events.PlanRefused, "/planner", "p", &events.Failure{Negotiation: w.opened.Negotiation, Reason: "the others have too little memory"})
	w.run()
	if refused := w.refusals("n3"); len(refused) != 1 || refused[0].Refused != events.ChangeLeave {
		t.Fatalf("refused %+v, expected its leave", refused)
	}
	w.tick(20 * time.Second)
	w.lose("n2") // a change is under way, and waits for its plan, when the deadline passes
	w.run()
	w.tick(15 * time.Second)
	if refused := w.refusals("n3"); len(refused) != 1 || w.opened == nil {
		t.Errorf("it trains on, and was refused %+v; a change is under way: %v", refused[1:], w.opened != nil)
	}
}

func TestADeadlineBeyondAllTimeHasNotPassed(t *testing.T) {
	w := newWorld(t, 3)
	w.mute[events.PlanRequested] = true
	w.hear(events.LeaveRequested, "/node/n3", "n3", &events.Leave{Node: "n3", DeadlineSeconds: 1e18})
	w.run()
	w.tick(time.Second)
	if given := w.refusals("n3"); len(given) > 0 {
		t.Fatalf("given up: %+v", given)
	}
}

func TestLayersAreCopiedWhileTrainingGoesOnForHalfTheTimeThatALeaverHas(t *testing.T) {
	w := newWorld(t, 2)
	w.transfer, w.seconds, w.mute[events.PreCopyStarted] = true, 5, true
	w.hear(events.LeaveRequested, "/node/n1", "n1", &events.Leave{Node: "n1", DeadlineSeconds: 30})
	w.run()
	w.tick(14 * time.Second)
	if w.phase() != protocol.PreCopying {
		t.Fatalf("phase %q", w.phase())
	}
	w.tick(2 * time.Second)
	if w.nodes() != "n2" {
		t.Fatalf("phase %q, nodes %q", w.phase(), w.nodes())
	}
}

// Found by simulation seed 1749: all waited for ever in a step that a leaver was to train before the plan without it
// took over.
func TestALeaverThatDiesBeforeItsStepMakesTheOthersGiveUpTheirs(t *testing.T) {
	w := newWorld(t, 3)
	w.step = 19
	w.hear(events.LeaveRequested, "/node/n3", "n3", &events.Leave{Node: "n3"})
	w.run()
	if plan := w.plans()[1]; plan.ResumeStep != 21 || w.nodes() != "n1 n2" {
		t.Fatalf("nodes %q go on at step %d", w.nodes(), plan.ResumeStep)
	}
	w.lose("n3")
	w.run()
	if plans := w.plans(); len(plans) != 3 || plans[2].ResumeStep != 19 {
		t.Fatalf("%d plans: the others wait for n3 in step 19", len(plans))
	}
	w.lose("n3")
	w.run()
	if len(w.plans()) != 3 {
		t.Fatal("its loss counts twice")
	}
}

// leavesLate has n1, from which units are to come, ask to go sooner than they can move.
func leavesLate(t *testing.T) *world {
	w := newWorld(t, 3)
	w.transfer, w.seconds = true, 60
	w.mute[events.PreCopyStarted], w.mute[events.Scheduled] = true, true
	w.hear(events.LeaveRequested, "/node/n1", "n1", &events.Leave{Node: "n1", DeadlineSeconds: 30})
	w.run()
	return w
}

func TestALeaverWithoutWhichTheOthersCannotDoInTimeIsToldSoBeforeItsDeadline(t *testing.T) {
	w := leavesLate(t)
	last := w.said[len(w.said)-2]
	if last.Kind != events.LeaveDelayed || last.Subject != "n1" {
		t.Fatalf("said %v", w.saidKinds())
	}
	delay := must[events.LeaveDelay](t, last)
	if delay.Seconds != 62 || delay.DeadlineSeconds != 30 || len(delay.Alone) > 0 || delay.Incarnation != w.process["n1"] {
		t.Errorf("it is told %+v", delay)
	}
}

func TestWhatALateLeaverHoldsIsTakenFromOthersWhoHoldItToo(t *testing.T) {
	w := leavesLate(t)
	asked := w.count(events.RestorationAsked)
	for _, event := range w.said {
		if event.Kind == events.PreCopyStarted {
			for _, transfer := range must[events.PreCopyStart](t, event).Plan.Migration.Transfers {
				if asked != 3 || transfer.Sources[0].Node == "n1" {
					t.Errorf("asked %d times, and %s gives unit %d", asked, transfer.Sources[0].Node, transfer.Unit)
				}
			}
		}
	}
}

func TestNobodyGivesUpALeaverAtItsDeadlineWhereAllStandStillAndNothingComesFromIt(t *testing.T) {
	w := leavesLate(t)
	if w.tick(26 * time.Second); w.phase() != protocol.PreCopying {
		t.Fatalf("phase %q: others train on until they have to stop", w.phase())
	}
	w.tick(10 * time.Second)
	if w.phase() != protocol.Transferring || len(w.refusals("n1")) > 0 {
		t.Fatalf("phase %q, refused %+v", w.phase(), w.refusals("n1"))
	}
}

func TestALeaverWithTheTimeThatItTakesIsToldNothing(t *testing.T) {
	w := newWorld(t, 3)
	w.transfer, w.seconds = true, 60
	w.hear(events.LeaveRequested, "/node/n1", "n1", &events.Leave{Node: "n1", DeadlineSeconds: 120})
	w.run()
	if w.count(events.LeaveDelayed) > 0 {
		t.Fatal("it is told that it is late")
	}
}
