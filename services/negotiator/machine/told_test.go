package machine

import (
	"fmt"
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

// lie is what a node that never trained says of a plan that never was.
func lie(generation uint64) *events.Trained {
	return &events.Trained{Generation: generation, Plan: events.Digest([]byte("a lie")), Step: 7000}
}

func TestNobodyWaitsForOneThatToldOfAGenerationNoClusterReachesAndIsGone(t *testing.T) {
	w, _ := wiped(t)
	w.trained["n9"] = lie(1e18)
	w.joinAll("n9")
	w.tick(5 * time.Second)
	w.lose("n9")
	w.joinAll("m1", "m2", "m3")
	w.tick(10 * time.Second)
	w.beginsBehind(0)
}

func TestAResetThatCannotBeSaidIsRefusedAndNotDone(t *testing.T) {
	w := toldAndSilent(t)
	for node := range w.machine.state.Recall.Told { // as the memory of a build before may have it
		w.machine.state.Recall.Told[node] = *lie(1e18)
	}
	if refused := w.reset(); !strings.Contains(refused, "generation") {
		t.Errorf("refused %q", refused)
	}
	if w.tick(10 * time.Second); len(w.plans()) > 0 {
		t.Errorf("training began: plans %+v", w.plans())
	}
}

func TestAnHonestDigestUnderAnotherGenerationIsOneWord(t *testing.T) {
	w, lost := wiped(t)
	w.step = 40
	w.trained["n9"] = &events.Trained{Generation: 4e9, Plan: lost.Digest(), Step: 40}
	w.joinAll("n1", "n2", "n3", "n4", "n9")
	w.tick(time.Minute)
	w.goesOn(lost, "n1 n2 n3 n4 n9")
}

func TestAClockThatGoesBackDoesNotEndTheWaitForThoseWhoTold(t *testing.T) {
	w := toldAndSilent(t)
	w.skew -= 70 * time.Second // before the wait began
	w.joinAll("m4")
	w.tick(115 * time.Second)
	if plans := w.plans(); len(plans) > 0 {
		t.Fatalf("training began anew though n1 and n2 may live: plans %+v", plans)
	}
	w.tick(10 * time.Second)
	w.beginsBehind(2)
}

func TestTheWaitForThoseWhoToldEndsThoughOthersComeByEverNewNames(t *testing.T) {
	w := toldAndSilent(t)
	for i := range 9 {
		name := fmt.Sprintf("x%d", i)
		w.trained[name], w.deaf[name] = lie(3), true
		w.joinAll(name)
		w.tick(5 * time.Second)
		w.lose(name)
		w.run()
		w.tick(55 * time.Second)
		if i == 5 && len(w.plans()) > 0 {
			t.Fatal("who told later was not waited for as long as the first")
		}
	}
	w.tick(10 * time.Second)
	w.beginsBehind(3)
}

func TestAHoldForThoseWhoToldNamesABoundedNumber(t *testing.T) {
	w, _ := wiped(t)
	var names []string
	for i := range events.MostSilent + 6 {
		names = append(names, fmt.Sprintf("x%d", i))
		w.trained[names[i]], w.deaf[names[i]] = lie(3), true
	}
	w.joinAll(names...)
	w.tick(5 * time.Second)
	for _, name := range names {
		w.lose(name)
	}
	w.joinAll("m1", "m2", "m3")
	w.tick(10 * time.Second)
	if held := w.held(); held == nil || len(held.Awaits) != events.MostSilent || !strings.Contains(held.Reason, "62 more") {
		t.Errorf("held %+v", held)
	}
}
