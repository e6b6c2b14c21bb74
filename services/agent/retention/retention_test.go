package retention

import (
	"slices"
	"testing"
)

func part(step uint64, node string, units ...int) Part {
	return Part{ID: ID{Step: step, Plan: "p"}, Node: node, Units: units, Whole: true, Bytes: 10}
}

func torn(p Part) Part {
	p.Whole = false
	return p
}

func steps(ids []ID) (list []uint64) {
	for _, id := range ids {
		list = append(list, id.Step)
	}
	return list
}

func names(parts []Part) (list []string) {
	for _, p := range parts {
		list = append(list, p.Node)
	}
	return list
}

func TestASnapshotIsCompleteWhenItsPartsHoldEveryUnit(t *testing.T) {
	parts := []Part{
		part(8, "a", 0, 1), part(8, "b", 2),
		part(16, "a", 0, 1), torn(part(16, "b", 2)),
		part(24, "a", 0, 1), part(24, "b", 2), part(24, "c", 2),
	}
	if got := steps(Complete(parts, 3)); !slices.Equal(got, []uint64{24, 8}) {
		t.Errorf("complete are %v: expected 24 and 8", got)
	}
}

func TestPartsOfOneStepUnderTwoPlansAreNotOneSnapshot(t *testing.T) {
	other := part(8, "b", 1)
	other.Plan = "q"
	if got := Complete([]Part{part(8, "a", 0), other}, 2); len(got) > 0 {
		t.Errorf("complete is %v: expected nothing", got)
	}
}

func TestWhatIsOlderThanTheNewestCompleteOnesIsObsolete(t *testing.T) {
	parts := []Part{
		part(8, "oldest", 0, 1),
		part(16, "kept", 0, 1),
		part(20, "given up", 0),
		part(24, "newest", 0, 1),
		torn(part(32, "being written", 0)),
	}
	if got := names(Obsolete(parts, 2, 2, none)); !slices.Equal(got, []string{"oldest", "given up"}) {
		t.Errorf("obsolete are %v", got)
	}
}

func none(Part) bool { return false }

func TestWhatLiesBeyondAStepThatIsTrainedAgainKeepsNothingElseOut(t *testing.T) {
	parts := []Part{part(24, "n", 0), part(30, "n", 0), part(48, "n", 0), part(54, "n", 0), part(54, "other", 1)}
	got := Obsolete(parts[:4], 0, 2, Beyond(30, "n"))
	if want := parts[2:4]; !slices.EqualFunc(got, want, func(a, b Part) bool { return a.ID == b.ID }) {
		t.Errorf("obsolete are %v: expected %v, for training is at step 30 again", got, want)
	}
	if got := Obsolete(parts[4:], 0, 2, Beyond(30, "n")); len(got) > 0 {
		t.Errorf("obsolete are %v of a node that may be ahead", got)
	}
}

func TestNothingIsObsoleteBeforeASnapshotIsComplete(t *testing.T) {
	if got := Obsolete([]Part{part(8, "a", 0), part(16, "a", 0), torn(part(24, "b", 1))}, 2, 1, none); len(got) > 0 {
		t.Errorf("obsolete are %v: expected none", names(got))
	}
}

func TestTheOldestPartsMakeRoom(t *testing.T) {
	own := []Part{part(24, "newest", 0), part(8, "oldest", 0), part(16, "older", 0)}
	if retire, ok := Room(own, 10, 35); !ok || !slices.Equal(names(retire), []string{"oldest"}) {
		t.Errorf("for 10 bytes more than 30 within 35: retire %v, %v", names(retire), ok)
	}
	if retire, ok := Room(own, 10, 40); !ok || len(retire) > 0 {
		t.Errorf("all fits: retire %v, %v", names(retire), ok)
	}
}

func TestTheNewestWholePartMakesNoRoom(t *testing.T) {
	own := []Part{part(8, "whole", 0), torn(part(16, "torn", 0))}
	if retire, ok := Room(own, 10, 15); ok || !slices.Equal(names(retire), []string{"torn"}) {
		t.Errorf("retire %v, %v: expected the torn one, and no room", names(retire), ok)
	}
}
