package machine

import (
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

// stoppedAt100 is a job of 100 steps that three nodes trained, stopped after step 7. All hosts can read its snapshot.
func stoppedAt100(t *testing.T) *world {
	w := newEmptyWorld(t, 1, 0)
	w.tiers, w.steps = true, 100
	w.joins(12, "n1", "n2", "n3")
	w.tick(5 * time.Second)
	w.step = 5
	w.stops()
	w.step, w.reads = 0, map[string][]events.Snapshot{}
	for _, node := range []string{"n1", "n2", "n3", "n9"} {
		w.reads[node] = []events.Snapshot{snapshotOf(7, w.machine.state.PlanDigest, 0, 3)}
	}
	return w
}

// says has nodes join that are to train a job of so many steps.
func (w *world) says(steps uint64, nodes ...string) {
	w.steps = steps
	w.joins(12, nodes...)
	w.tick(5 * time.Second)
}

// trainsOn fails unless the last plan goes on from the snapshot of step 7, with these nodes, and the job has so many steps.
func (w *world) trainsOn(steps uint64, nodes string) {
	w.t.Helper()
	if w.plan.ResumeStep != 7 || w.nodes() != nodes || w.machine.state.Job.Steps != steps {
		w.t.Errorf("generation %d goes on from step %d with %q to step %d, expected from 7 with %q to %d; held %+v",
			w.plan.Generation, w.plan.ResumeStep, w.nodes(), w.machine.state.Job.Steps, nodes, steps, w.held())
	}
}

func TestAStoppedJobIsTrainedLongerOnceMostOfItsNodesSaySo(t *testing.T) {
	w := stoppedAt100(t)
	plans := len(w.plans())
	w.says(200, "n1")
	held := w.held()
	if len(w.plans()) > plans || held == nil || !strings.Contains(held.Reason, "told to have 200 by n1") || len(held.Awaits) != 2 {
		t.Fatalf("%d plans after %d, held %+v", len(w.plans()), plans, held)
	}
	w.restart()
	w.says(200, "n2")
	w.trainsOn(200, "n1 n2")
}

func TestAStrayThatComesFirstAfterAStopDoesNotChangeHowLongTheJobIs(t *testing.T) {
	for _, steps := range []uint64{200, 50, 7} {
		w := stoppedAt100(t)
		w.says(steps, "n9")
		w.says(100, "n1")
		w.trainsOn(100, "n1") // it waits for nobody
		told := w.refusals("n9")
		if len(told) == 0 || !told[len(told)-1].OtherJob || !strings.Contains(told[len(told)-1].Reason, `"job.steps": expected 100`) {
			t.Errorf("%d steps: n9 is told %+v", steps, told)
		}
	}
}

func TestAnOldScriptThatComesFirstAfterAStopDoesNotKeepMostFromTrainingLonger(t *testing.T) {
	w := stoppedAt100(t)
	w.says(200, "n1")
	w.says(100, "n2")
	if held := w.held(); !strings.Contains(held.Reason, "100 by n2, 200 by n1") {
		t.Errorf("held %+v", held)
	}
	w.says(200, "n3")
	w.trainsOn(200, "n1 n3")
	if told := w.refusals("n2"); !strings.Contains(told[len(told)-1].Reason, "reset --from-snapshot") {
		t.Errorf("n2 is told %+v", told)
	}
}

func TestWhereTheOthersOfAStoppedJobDoNotComeItIsAsLongAsItWas(t *testing.T) {
	w := stoppedAt100(t)
	plans := len(w.plans())
	w.says(200, "n1")
	w.says(100, "n2")
	if w.tick(14 * time.Minute); len(w.plans()) > plans {
		t.Fatal("there is a plan after 14 min")
	}
	w.tick(time.Minute)
	w.trainsOn(100, "n2")
}

func TestAStrayThatWaitsAloneAfterAStopMakesNoJobLonger(t *testing.T) {
	w := stoppedAt100(t)
	w.says(1_000_000, "n9")
	w.tick(16 * time.Minute)
	if told := w.refusals("n9"); len(told) == 0 || !strings.Contains(told[0].Reason, "reset --from-snapshot") {
		t.Errorf("n9 is told %+v", told)
	}
	w.says(100, "n1", "n2", "n3")
	w.tick(time.Minute)
	if told := append(w.refusals("n1"), w.refusals("n2")...); len(told) > 0 {
		t.Errorf("the job's own are told %+v", told)
	}
	if w.plan.ResumeStep != 7 || w.machine.state.Job.Steps != 100 {
		t.Errorf("it goes on from step %d of %d, with %s", w.plan.ResumeStep, w.machine.state.Job.Steps, w.nodes())
	}
}

func TestWhoIsGoneAgainHasNobodyOfAStoppedJobWaitLess(t *testing.T) {
	w := stoppedAt100(t)
	w.says(200, "n9")
	w.lose("n9")
	w.run()
	w.tick(time.Hour)
	plans := len(w.plans())
	w.says(200, "n9")
	if w.tick(14 * time.Minute); len(w.plans()) > plans {
		t.Error("there is a plan after 14 min")
	}
}
