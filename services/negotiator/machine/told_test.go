package machine

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

// wipedAndLied has n1 to n3 tell a new log of plan 2, whose layer 0 is lost; a snapshot of it at step 32 can be read. One that lies has
// told of a later plan, and is gone: its digest is of an older one, of which a snapshot of step 437 can be read, which was undone.
func wipedAndLied(t *testing.T) *world {
	w, lost := wiped(t)
	undone := events.Digest([]byte("a plan that a reset gave up"))
	w.tiers, w.lacks, w.reads, w.step = true, 1, map[string][]events.Snapshot{}, 40
	for _, node := range []string{"n1", "n2", "n3"} {
		w.reads[node] = []events.Snapshot{snapshotOf(32, lost.Digest(), 0, 3), snapshotOf(437, undone, 0, 3)}
	}
	w.trained["n9"] = &events.Trained{Generation: 18, Plan: undone, Step: 1}
	for _, node := range []string{"n9", "n1", "n2", "n3"} {
		w.join(node)
	}
	w.run()
	w.dies("n9")
	w.run()
	w.tick(120 * time.Second)
	return w
}

func TestOneWordOfWhoIsGoneBringsBackNothingThatWasUndone(t *testing.T) {
	w := wipedAndLied(t)
	plans := w.plans()
	if len(plans) == 0 {
		t.Fatalf("no plan; held %+v", w.held())
	}
	if plan := plans[0]; plan.Generation != 19 || plan.ResumeStep != 32 {
		t.Errorf("generation %d goes on from step %d", plan.Generation, plan.ResumeStep)
	}
}

// toldAndSilent has n1 and n2 tell a new log of plan 2, and fall silent before they tell the plan. Three others come.
func toldAndSilent(t *testing.T) *world {
	w, _ := wiped(t)
	w.deaf["n1"], w.deaf["n2"] = true, true
	w.joinAll("n1", "n2")
	w.tick(4 * time.Second)
	w.lose("n1")
	w.lose("n2")
	w.run()
	w.joinAll("m1", "m2", "m3")
	w.tick(time.Minute)
	held := w.held()
	if held == nil || !slices.Equal(held.Awaits, []string{"n1", "n2"}) || !strings.Contains(held.Reason, "reknit cluster reset") ||
		len(w.plans()) > 0 {
		t.Fatalf("%d plans, held %+v", len(w.plans()), held)
	}
	return w
}

func (w *world) joinAll(nodes ...string) {
	for _, node := range nodes {
		w.join(node)
	}
	w.run()
}

// beginsBehind fails where training has not begun under the first plan behind a generation.
func (w *world) beginsBehind(told uint64) {
	w.t.Helper()
	if plans := w.plans(); len(plans) == 0 || plans[0].Generation != told+1 || plans[0].ResumeStep != 0 {
		w.t.Errorf("plans %+v, held %+v", plans, w.held())
	}
}

func TestAGenerationThatNodesToldOfIsNotUsedAgainOnceTheyAreGone(t *testing.T) {
	w := toldAndSilent(t)
	w.restart()
	w.tick(3 * time.Minute) // a negotiator that starts gives the full time again
	w.beginsBehind(2)
	w.joinAll("m4")
	w.tick(time.Minute)
	if plans := w.plans(); len(plans) != 2 || plans[1].Generation != 4 {
		t.Errorf("plans %+v", plans)
	}
}

func TestWhoToldOfALostPlanAndComesBackHasTrainingGoOn(t *testing.T) {
	w := toldAndSilent(t)
	delete(w.deaf, "n1")
	delete(w.deaf, "n2")
	w.joinAll("n1", "n2")
	w.tick(10 * time.Second)
	if plans := w.plans(); len(plans) == 0 || plans[0].Generation != 3 || plans[0].ResumeStep != 40 {
		t.Errorf("plans %+v, held %+v", plans, w.held())
	}
}

func TestAResetEndsTheWaitForThoseWhoToldOfALostPlan(t *testing.T) {
	w := toldAndSilent(t)
	if refused := w.reset(); refused != "" {
		t.Fatal(refused)
	}
	if reset := must[events.JobReset](t, w.last(events.TrainingReset)); reset.Generation != 2 || reset.Step != 40 ||
		!slices.Equal(reset.Silent, []string{"n1", "n2"}) {
		t.Errorf("the reset tells of %+v", reset)
	}
	w.gives = true
	w.joinAll("n1") // which keeps what was given up
	w.tick(10 * time.Second)
	w.beginsBehind(2)
	if refused := w.refusals("n1"); len(refused) == 0 || w.nodes() != "m1 m2 m3" {
		t.Errorf("refused %+v, nodes %s", refused, w.nodes())
	}
}

func TestNobodyIsWaitedForWhoToldOfALostPlanAndHasEnded(t *testing.T) {
	w, _ := wiped(t)
	w.deaf["n1"] = true
	w.joinAll("n1")
	w.tick(4 * time.Second)
	w.dies("n1")
	w.joinAll("m1", "m2", "m3")
	w.tick(10 * time.Second)
	w.beginsBehind(2)
}

func TestOneWhoTellsOfAPlanAndIsGoneIsWaitedForForABoundedTime(t *testing.T) {
	w, _ := wiped(t)
	w.trained["n9"], w.remembers["n9"] = w.trained["n1"], w.remembers["n1"]
	for _, node := range []string{"n1", "n2", "n3", "n4"} { // they never were
		delete(w.trained, node)
		delete(w.remembers, node)
	}
	w.joinAll("n9")
	w.tick(5 * time.Second)
	w.lose("n9")
	w.joinAll("m1", "m2", "m3")
	w.tick(150 * time.Second)
	w.beginsBehind(2)
}

func TestAGenerationThatNoClusterReachesCountsForNothing(t *testing.T) {
	w, _ := wiped(t)
	w.trained["n9"] = &events.Trained{Generation: 1e18, Plan: events.Digest([]byte("a lie")), Step: 7000}
	w.joinAll("n9", "m1", "m2")
	w.tick(10 * time.Second)
	w.beginsBehind(0)
}
