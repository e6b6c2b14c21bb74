package machine

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

// restored is a cluster whose log is an older one: it ends at generation 1 of three nodes, which trained under generation 2 of four.
func restored(t *testing.T) (w *world, lost events.Event) {
	newer, lost := wiped(t)
	w = newWorld(t, 3)
	w.sequence = 1000
	w.trained, w.remembers = newer.trained, newer.remembers
	w.deaf = map[string]bool{"n1": true, "n2": true, "n3": true} // what is of a generation before theirs is late to them
	return w, lost
}

func (w *world) rejoin(nodes ...string) {
	for _, node := range nodes {
		delete(w.deaf, node)
		w.join(node)
		w.run()
		w.tick(time.Second)
	}
}

func TestALogThatIsOlderThanWhatNodesTrainedDecidesNothingAndSaysWhatToDo(t *testing.T) {
	w, _ := restored(t)
	w.rejoin("n1", "n2", "n3", "n4")
	w.tick(5 * time.Minute)
	if len(w.plans()) != 1 {
		t.Fatalf("%d plans: nothing is to be decided", len(w.plans()))
	}
	held := w.held()
	for _, expected := range []string{events.OlderLog + ": it ends at generation 1", "generation 2, to step 40", "reknit log accept"} {
		if held == nil || !strings.Contains(held.Reason, expected) {
			t.Errorf("held %+v: expected %q", held, expected)
		}
	}
	if halted := w.machine.Halted(); held == nil || halted != held.Reason {
		t.Errorf("/readyz says %q", halted)
	}
	if holds := slices.DeleteFunc(slices.Clone(w.said), func(e events.Event) bool { return e.Kind != events.ClusterHeld }); len(holds) > 12 {
		t.Errorf("it is said %d times", len(holds))
	}
}

func TestALogIsOlderThoughThoseWhoTrainedTellOfDifferentLaterPlans(t *testing.T) {
	w, _ := restored(t)
	w.trained["n4"] = &events.Trained{Generation: 3, Plan: events.Digest([]byte("plan 3")), Step: 45}
	w.rejoin("n1", "n2", "n3", "n4")
	w.tick(time.Minute)
	if held := w.held(); len(w.plans()) != 1 || held == nil || !strings.Contains(held.Reason, "reknit log accept") {
		t.Errorf("%d plans, held %+v", len(w.plans()), held)
	}
}

func TestAnOlderLogThatIsAcceptedGoesOnFromWhatLivingNodesHold(t *testing.T) {
	w, lost := restored(t)
	w.rejoin("n1", "n2", "n3")
	w.restart()
	w.hear(events.LogAccepted, "/user", "opticks", &events.Acceptance{Reason: "the disk is gone"})
	w.run()
	w.tick(10 * time.Second)
	plans := w.plans()
	if len(plans) != 2 {
		t.Fatalf("%d plans, held %+v", len(plans), w.held())
	}
	if plan := plans[1]; plan.Generation != 3 || plan.Parent != lost.Digest() || plan.ResumeStep != 40 || w.nodes() != "n1 n2 n3" {
		t.Errorf("generation %d behind %s goes on at step %d with %s", plan.Generation, plan.Parent, plan.ResumeStep, w.nodes())
	}
	if halted := w.machine.Halted(); halted != "" {
		t.Errorf("/readyz says %q", halted)
	}
}

func TestOneNodeThatTellsOfALaterPlanStopsNobody(t *testing.T) {
	w := newWorld(t, 3)
	w.trained = map[string]*events.Trained{"n4": {Generation: 99, Plan: events.Digest([]byte("a lie")), Step: 7000}}
	w.rejoin("n4")
	w.hear(events.LogAccepted, "/user", "opticks", &events.Acceptance{Reason: "by mistake"})
	w.run()
	w.tick(10 * time.Second)
	if plans := w.plans(); len(plans) != 2 || plans[1].Generation != 2 || w.held() != nil {
		t.Errorf("%d plans, held %+v", len(plans), w.held())
	}
}
