package protocol

import (
	"slices"
	"testing"
)

// stored is what a node can read of the snapshot of a step under a plan.
func stored(node, plan string, step uint64, first, end int) Stored {
	return Stored{Held{Node: node, First: first, End: end, Steps: []uint64{step}}, Snapshot{plan, step}}
}

func TestTrainingGoesBackToTheNewestSnapshotThatCanBeReadAsAWhole(t *testing.T) {
	resume, from, ok := SnapshotPoint(3, []Stored{
		stored("a", "p1", 100, 0, 3),
		stored("a", "p1", 200, 0, 2), stored("b", "p1", 200, 2, 3),
		stored("a", "p1", 300, 0, 2),
	})
	if !ok || resume.Step != 200 || from.Plan != "p1" {
		t.Fatalf("goes back to %d of %q (%v): expected 200", resume.Step, from.Plan, ok)
	}
	if !slices.Equal(resume.Holders["a"], []int{0, 1}) || !slices.Equal(resume.Holders["b"], []int{2}) {
		t.Errorf("who reads what: %v", resume.Holders)
	}
}

func TestPartsThatWereCapturedUnderTwoPlansMakeNoSnapshot(t *testing.T) {
	all := []Stored{stored("a", "p1", 200, 0, 2), stored("b", "p2", 200, 2, 3)}
	if resume, _, ok := SnapshotPoint(3, all); ok {
		t.Errorf("goes back to %d", resume.Step)
	}
}
