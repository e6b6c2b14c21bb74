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
