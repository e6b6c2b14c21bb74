package machine

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

// disputes has a node tell that the step is not made, for these nodes would apply other things than most; without any, that no side
// is the majority.
func (w *world) disputes(node string, outvoted ...string) {
	w.hear(events.StepBroken, "/node/"+node, node, &events.BrokenStep{
		Node: node, Incarnation: w.process[node], Generation: w.plan.Generation, Step: w.step, Reason: "the settings differ",
		Outvoted: outvoted, Tied: len(outvoted) == 0,
	})
}

func TestWhoDiffersFromMostIsGivenUpByNameAndTheOthersGoOn(t *testing.T) {
	w := newWorld(t, 4)
	w.step = 7
	for _, node := range []string{"n1", "n3", "n4"} {
		w.disputes(node, "n2")
	}
	w.run()
	refused := w.refusals("n2")
	if len(refused) != 1 || refused[0].Astray || !strings.Contains(refused[0].Reason, "outvoted: the settings differ") {
		t.Fatalf("refused %+v", refused)
	}
	if last := w.lastPlan(); w.nodes() != "n1 n3 n4" || last.ResumeStep != 7 {
		t.Errorf("nodes %q go on from step %d", w.nodes(), last.ResumeStep)
	}
}

func (w *world) lastPlan() events.Plan {
	plans := w.plans()
	return plans[len(plans)-1]
}

func TestWhoIsNamedByNoMoreThanHalfStays(t *testing.T) {
	w := newWorld(t, 4)
	w.step = 7
	w.disputes("n1", "n2", "n3", "n4", "n9")
	w.disputes("n1", "n2") // once more
	w.disputes("n3", "n2", "n2")
	w.run()
	if w.nodes() != "n1 n2 n3 n4" {
		t.Errorf("nodes %q", w.nodes())
	}
	w.disputes("n4", "n2") // what was said of another step counts no more
	if w.run(); w.nodes() != "n1 n2 n3 n4" {
		t.Errorf("nodes %q a step later", w.nodes())
	}
}

func TestThoseWhoTrainedBeforeOutvoteAsManyWhoJoinedSince(t *testing.T) {
	for _, tellers := range [][]string{{"n1", "n2"}, {"n3", "n4"}} {
		w := newWorld(t, 2)
		w.tick(time.Second)
		w.join("n3")
		w.join("n4")
		w.run()
		w.step += 7
		for _, teller := range tellers {
			w.disputes(teller, slices.DeleteFunc([]string{"n1", "n2", "n3", "n4"}, func(n string) bool { return slices.Contains(tellers, n) })...)
		}
		w.run()
		if expected := map[string]string{"n1": "n1 n2", "n3": "n1 n2 n3 n4"}[tellers[0]]; w.nodes() != expected {
			t.Errorf("where %v tell nodes %q go on, expected %q", tellers, w.nodes(), expected)
		}
	}
}

// Nobody loses its state, whoever told first each time, and the cluster says what to do.
func TestWhereNoSideIsTheMajorityTheClusterHoldsUntilOneIsGone(t *testing.T) {
	w := newWorld(t, 2)
	w.step = 7
	for range 3 * mostBreaks {
		w.disputes("n1")
		w.disputes("n2")
		w.run()
		if held := w.held(); held == nil || held.Reason != "the settings differ" {
			t.Fatalf("held %+v", held)
		}
		for w.held() != nil {
			w.tick(time.Minute)
		}
	}
	if w.nodes() != "n1 n2" || len(w.refusals("n1"))+len(w.refusals("n2")) > 0 {
		t.Fatalf("nodes %q", w.nodes())
	}
	w.disputes("n1")
	w.disputes("n2")
	w.run()
	w.hear(events.LeaveRequested, "/node/n2", "n2", &events.Leave{Node: "n2", Reason: "drained"})
	if w.run(); w.held() != nil || w.nodes() != "n1" || w.lastPlan().ResumeStep != 7 {
		t.Errorf("held %+v, nodes %q after one side has left", w.held(), w.nodes())
	}
}

func TestOneOfManyHoldsNobodyUpWithATie(t *testing.T) {
	w := newWorld(t, 3)
	w.step = 7
	w.disputes("n1")
	if w.run(); w.held() != nil || w.nodes() != "n1 n2 n3" {
		t.Errorf("held %+v, nodes %q", w.held(), w.nodes())
	}
}

func TestWhoNamesOthersAgainAndAgainIsGivenUpItself(t *testing.T) {
	w := newWorld(t, 3)
	w.step = 7
	for range mostBreaks {
		w.disputes("n1", "n2", "n3")
		w.run()
	}
	if w.nodes() != "n2 n3" {
		t.Errorf("nodes %q", w.nodes())
	}
}
