package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

// stranger is a node that says that it trained under a plan, and does not tell that plan.
func (w *world) stranger(node string) {
	w.trained = map[string]*events.Trained{node: {Generation: 5, Plan: events.Digest([]byte("nobody's")), Step: 30}}
}

func TestOneThatSaysThatItTrainedAndTellsNoPlanHasNobodyRefused(t *testing.T) {
	w := newEmptyWorld(t, 8, 0)
	w.stranger("n7")
	w.joins(12, "n1", "n2", "n3", "n4", "n5", "n6")
	w.tick(time.Minute)
	w.joins(24, "n7")
	w.tick(time.Minute)
	for i := 1; i <= 6; i++ {
		if refused := w.refusals(fmt.Sprintf("n%d", i)); len(refused) > 0 {
			t.Errorf("refused %+v", refused)
		}
	}
	refused := w.refusals("n7")
	if len(refused) != 1 || refused[0].OtherJob || !strings.Contains(refused[0].Reason, "does not tell that plan") {
		t.Errorf("n7: refused %+v", refused)
	}
	w.joins(12, "n8", "n9")
	if w.nodes() != "n1 n2 n3 n4 n5 n6 n8 n9" {
		t.Errorf("nodes %q", w.nodes())
	}
}

func TestWhoeverComesWhileOneIsAskedForItsPlanIsNotHeldToThatOnesJob(t *testing.T) {
	w := newEmptyWorld(t, 2, 0)
	w.stranger("n7")
	w.deaf["n7"] = true
	w.joins(24, "n7")
	w.tick(4 * time.Second)
	if w.machine.state.Negotiation == nil {
		t.Fatal("nobody is asked for the plan")
	}
	w.joins(12, "n1", "n2")
	w.lose("n7")
	w.run()
	w.tick(3 * time.Minute) // it may hold what was trained, and is waited for
	if refused := append(w.refusals("n1"), w.refusals("n2")...); len(refused) > 0 || w.nodes() != "n1 n2" {
		t.Errorf("nodes %q, refused %+v", w.nodes(), refused)
	}
}

func TestWhoTellsNoFirstStateIsNotOfTwoJobs(t *testing.T) {
	w := newEmptyWorld(t, 3, 0)
	w.join("n1")
	w.run()
	join := must[events.Join](t, w.heard[0])
	for node, state := range map[string]string{"n2": "seed 1", "n3": "seed 2"} {
		join.Node, join.Incarnation, join.Job.FirstState = node, node+"-1", events.Digest([]byte(state))
		w.process[node] = join.Incarnation
		w.hear(events.JoinRequested, "/node/"+node, node, &join)
		w.run()
	}
	w.tick(time.Minute)
	if len(w.plans()) > 0 || len(w.machine.state.Bids) != 2 {
		t.Errorf("%d plans, %d jobs: two first states began as one job", len(w.plans()), len(w.machine.state.Bids))
	}
}

func TestNoMoreThanSixteenJobsWaitForAFirstPlan(t *testing.T) {
	w := newEmptyWorld(t, 40, 0)
	for i := range 2 * mostBids {
		w.joins(2+i, fmt.Sprintf("n%02d", i))
	}
	if jobs, nodes := len(w.machine.state.Bids), len(w.machine.state.Joiners); jobs != mostBids || nodes != mostBids {
		t.Errorf("%d jobs of %d nodes wait", jobs, nodes)
	}
	last := fmt.Sprintf("n%02d", 2*mostBids-1)
	if refused := w.refusals(last); len(refused) != 1 || refused[0].OtherJob {
		t.Errorf("refused %+v: expected that it asks again, as no job is decided", refused)
	}
}

func TestInALogThatWasWipedWhoeverTrainedDefinesTheJob(t *testing.T) {
	w := newWorld(t, 3)
	plan, data := w.plan, w.said[slices.IndexFunc(w.said, func(event events.Event) bool { return event.Kind == events.PlanCommitted })].Data
	w = newEmptyWorld(t, 3, 0)
	w.remembers = map[string]*events.Plan{"n1": plan}
	w.trained = map[string]*events.Trained{"n1": {Generation: plan.Generation, Plan: events.Digest(data), Step: 30}}
	w.joins(24, "n8", "n9")
	w.joins(12, "n1")
	w.tick(time.Minute)
	if len(w.refusals("n8")) != 1 || len(w.refusals("n9")) != 1 || len(w.refusals("n1")) != 0 {
		t.Errorf("refused: n8 %+v, n9 %+v, n1 %+v", w.refusals("n8"), w.refusals("n9"), w.refusals("n1"))
	}
}
