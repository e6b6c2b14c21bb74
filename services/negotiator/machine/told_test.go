package machine

import (
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
