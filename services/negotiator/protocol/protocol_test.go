package protocol

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestTrainingResumesAtTheNewestStepEveryLayerHas(t *testing.T) {
	held := []Held{
		{Node: "n1", First: 0, End: 2, Steps: []uint64{120, 119}},
		{Node: "n2", First: 2, End: 4, Steps: []uint64{119, 118}},
	}
	resume, _, ok := ResumePoint(4, held)
	if !ok || resume.Step != 119 {
		t.Fatalf("got step %d (%v), want 119: n1 rolls back", resume.Step, ok)
	}
	if !slices.Equal(resume.Holders["n1"], []int{0, 1}) || !slices.Equal(resume.Holders["n2"], []int{2, 3}) {
		t.Fatalf("holders: %v", resume.Holders)
	}
}

func TestWhoeverIsBehindFetchesWhenTheNewestStepIsHeldElsewhere(t *testing.T) {
	held := []Held{
		{Node: "n1", First: 0, End: 2, Steps: []uint64{8, 7}},
		{Node: "n2", First: 0, End: 2, Steps: []uint64{7, 6}},
	}
	resume, _, ok := ResumePoint(2, held)
	if !ok || resume.Step != 8 || len(resume.Holders["n2"]) != 0 {
		t.Fatalf("got %+v %v, want step 8 held by n1 alone", resume, ok)
	}
}

func TestALayerWithoutHolderIsNamed(t *testing.T) {
	_, missing, ok := ResumePoint(3, []Held{{Node: "n1", First: 0, End: 2, Steps: []uint64{5}}})
	if ok || !slices.Equal(missing, []int{2}) {
		t.Fatalf("got missing %v, ok %v", missing, ok)
	}
}

// The twin asks for each step from the newest down whether every layer has a holder.
func TestResumePointAgreesWithTryingEveryStep(t *testing.T) {
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 1))
		layers := 1 + random.IntN(5)
		held := make([]Held, 1+random.IntN(4))
		for i := range held {
			first := random.IntN(layers)
			held[i] = Held{Node: string(rune('a' + i)), First: first, End: first + 1 + random.IntN(layers-first)}
			for range 1 + random.IntN(2) {
				held[i].Steps = append(held[i].Steps, random.Uint64N(4))
			}
		}
		want, wantOK := tryEveryStep(layers, held)
		got, _, ok := ResumePoint(layers, held)
		if ok != wantOK || ok && got.Step != want {
			t.Fatalf("seed %d: got %d %v, want %d %v", seed, got.Step, ok, want, wantOK)
		}
	}
}

func tryEveryStep(layers int, held []Held) (uint64, bool) {
	for step := 10; step >= 0; step-- {
		all := true
		for layer := range layers {
			all = all && slices.ContainsFunc(held, func(h Held) bool {
				return h.First <= layer && layer < h.End && slices.Contains(h.Steps, uint64(step))
			})
		}
		if all {
			return uint64(step), true
		}
	}
	return 0, false
}

func TestNobodyIsAskedToStopBeforeAStepItHasBegun(t *testing.T) {
	promises := []uint64{41, 42, 41}
	stop := StopStep(promises)
	for _, promise := range promises {
		if stop < promise {
			t.Fatalf("stop at %d, but a member may already work on %d", stop, promise)
		}
	}
}

func TestTheFurtherLayersHaveMovedTheMoreAChangeMustPressToEndTheNegotiation(t *testing.T) {
	for _, at := range []struct {
		phase   Phase
		started bool
		least   Urgency
	}{
		{Consenting, false, Patient}, {Planning, false, Patient}, {Restoring, false, Patient}, {Promising, false, Patient},
		{PreCopying, true, Pressing}, {Promising, true, Pressing},
		{Transferring, false, Urgent}, {Transferring, true, Urgent},
	} {
		for _, change := range []Urgency{Patient, Pressing, Urgent} {
			if got, want := Supersedes(change, at.phase, at.started), change >= at.least; got != want {
				t.Errorf("urgency %d in %s, started %v: supersedes %v, want %v", change, at.phase, at.started, got, want)
			}
		}
	}
}

func TestRangesFoldNeighbouringLayers(t *testing.T) {
	if got := Ranges([]int{0, 1, 2, 5, 7, 8}); !slices.Equal(got, [][2]int{{0, 3}, {5, 6}, {7, 9}}) {
		t.Fatalf("got %v", got)
	}
}
