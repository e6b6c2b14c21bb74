package protocol

import (
	"math/rand/v2"
	"reflect"
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
	promises := map[string]uint64{"n1": 41, "n2": 42, "n3": 41}
	stop, impossible := StopStep(promises)
	for node, promise := range promises {
		if stop < promise || len(impossible) > 0 {
			t.Fatalf("stop at %d, but %s may already work on %d; impossible: %v", stop, node, promise, impossible)
		}
	}
}

func TestAPromiseFarFromTheOthersIsNamed(t *testing.T) {
	if _, impossible := StopStep(map[string]uint64{"n1": 41, "n2": 44, "n3": 45}); !slices.Equal(impossible, nil) {
		t.Errorf("a node that heard of it late, and was a step ahead: %v", impossible)
	}
	if _, impossible := StopStep(map[string]uint64{"n1": 41, "n2": 1 << 62, "n3": 42}); !slices.Equal(impossible, []string{"n2"}) {
		t.Errorf("impossible: %v", impossible)
	}
}

func TestStepsThatNobodyReachedAreNotPossible(t *testing.T) {
	window := Possible([]uint64{1000, 1001, 5_000_000, 0, 1000}, 990)
	if got := window.Within([]uint64{0, 997, 998, 1002, 1003, 5_000_000}); !slices.Equal(got, []uint64{998, 1002}) {
		t.Errorf("possible: %v", got)
	}
	if got := Possible([]uint64{3, 1}, 4).Within([]uint64{0, 1, 3}); !slices.Equal(got, []uint64{1, 3}) {
		t.Errorf("a plan that not all have reached: possible %v", got)
	}
	if got := Possible(nil, 9).Within([]uint64{0, 7}); len(got) != 2 {
		t.Errorf("nobody trains, and not all is possible: %v", got)
	}
}

// The twin gives up silent nodes one by one, and asks each time whether every unit still has a holder.
func TestNoUnitLosesItsLastHolderToSilence(t *testing.T) {
	for seed := range uint64(3000) {
		random := rand.New(rand.NewPCG(seed, 2))
		units, silent := map[string][]int{}, []string{}
		for i := range 1 + random.IntN(5) {
			node := string(rune('a' + i))
			for unit := range 4 {
				if random.IntN(2) == 0 {
					units[node] = append(units[node], unit)
				}
			}
			if random.IntN(2) == 0 {
				silent = append(silent, node)
			}
		}
		spare, last := Spare(units, silent)
		if len(spare)+len(last) != len(silent) {
			t.Fatalf("seed %d: of %v spare %v, last %v", seed, silent, spare, last)
		}
		for unit := range 4 {
			if heldBy(units, nil, unit) && !heldBy(units, spare, unit) {
				t.Fatalf("seed %d: nobody holds unit %d without %v: %v", seed, unit, spare, units)
			}
		}
		for _, node := range last {
			without := append(slices.Clone(spare), node)
			if !slices.ContainsFunc(units[node], func(unit int) bool { return !heldBy(units, without, unit) }) {
				t.Fatalf("seed %d: %s is waited for, and nobody needs it: %v without %v", seed, node, units, spare)
			}
		}
	}
}

// heldBy reports whether anybody but those without holds a unit.
func heldBy(units map[string][]int, without []string, unit int) bool {
	for node, held := range units {
		if !slices.Contains(without, node) && slices.Contains(held, unit) {
			return true
		}
	}
	return false
}

func TestClaimsCountWhereNobodyContradictsThem(t *testing.T) {
	held := []Held{{Node: "m", First: 0, End: 1, Steps: []uint64{9}}, {Node: "m", First: 4, End: 5, Steps: []uint64{9}}}
	count, disputed := Uncontradicted([]Claim{
		{"a", 0, 9, "x"},                                     // a member has it
		{"a", 4, 9, "x"}, {"b", 4, 9, "y"}, {"m", 4, 9, "x"}, // a member has it, and says of which bytes
		{"a", 1, 9, "x"}, {"b", 1, 9, "x"}, // agreed
		{"a", 2, 9, "x"}, {"b", 2, 9, "y"}, // not agreed
		{"a", 2, 8, "x"},                                     // alone
		{"a", 3, 9, "x"}, {"b", 3, 9, "x"}, {"c", 3, 9, "y"}, // two against one
	}, held)
	want := []Held{{"a", 1, 2, []uint64{9}}, {"a", 2, 3, []uint64{8}}, {"a", 3, 4, []uint64{9}}, {"a", 4, 5, []uint64{9}}, {"b", 1, 2, []uint64{9}},
		{"b", 3, 4, []uint64{9}}}
	if !slices.EqualFunc(count, want, func(a, b Held) bool {
		return a.Node == b.Node && a.First == b.First && a.End == b.End && slices.Equal(a.Steps, b.Steps)
	}) || !slices.Equal(disputed, []int{2}) {
		t.Errorf("count %v, disputed %v", count, disputed)
	}
}

func TestAChangeThatCanWaitEndsNoNegotiationWhileTrainingGoesOn(t *testing.T) {
	for _, at := range []struct {
		phase   Phase
		stopped bool
		least   Urgency
	}{
		{Consenting, true, Patient}, {Planning, true, Patient}, {Restoring, true, Patient}, {Transferring, true, Urgent},
		{Consenting, false, Pressing}, {Planning, false, Pressing}, {Restoring, false, Pressing},
		{PreCopying, false, Pressing}, {Promising, false, Pressing}, {Transferring, false, Urgent},
	} {
		for _, change := range []Urgency{Patient, Pressing, Urgent} {
			for renewals := range MostRenewals + 2 {
				want := change >= at.least && (change == Urgent || renewals < MostRenewals)
				if got := Supersedes(change, at.phase, at.stopped, renewals); got != want {
					t.Errorf("urgency %d in %s, stopped %v, after %d renewals: supersedes %v, want %v", change, at.phase, at.stopped,
						renewals, got, want)
				}
			}
		}
	}
}

func TestRangesFoldNeighbouringLayers(t *testing.T) {
	if got := Ranges([]int{0, 1, 2, 5, 7, 8}); !slices.Equal(got, [][2]int{{0, 3}, {5, 6}, {7, 9}}) {
		t.Fatalf("got %v", got)
	}
}

func TestAClusterWaitsAsLongAsTheLostStepsTakeToBeTrainedAgain(t *testing.T) {
	for _, row := range []struct {
		lost uint64
		step float64
		want float64
	}{
		{0, 1, 30}, {8, 1, 30}, {100, 1, 100}, {100, 2, 200}, {1_000_000, 60, 3600},
	} {
		if got := Patience(row.lost, row.step); got != row.want {
			t.Errorf("%d steps of %v s: waits for %v s, expected %v", row.lost, row.step, got, row.want)
		}
	}
}

func TestTheNewestOlderStepIsTakenThatOnePlanTrainedWhole(t *testing.T) {
	claim := func(node string, step uint64, units ...int) []Claim {
		var claims []Claim
		for _, unit := range units {
			claims = append(claims, Claim{Node: node, Unit: unit, Step: step, Digest: "good"})
		}
		return claims
	}
	point, ok := OlderPoint(3, map[uint64][]Claim{
		3: slices.Concat(claim("a", 12, 0, 1), claim("b", 12, 2), claim("c", 14, 0, 1, 2)),
		4: slices.Concat(claim("d", 20, 0, 1), claim("e", 12, 0, 1, 2)),
		5: claim("f", 20, 2),
	})
	if !ok || point.Step != 14 || len(point.Holders["c"]) != 3 {
		t.Fatalf("got %+v, %v", point, ok)
	}
	if point, ok := OlderPoint(3, map[uint64][]Claim{4: claim("d", 20, 0, 1), 5: claim("f", 20, 2)}); ok {
		t.Fatalf("two plans' units together: %+v", point)
	}
}

func TestOfWhoIsSparedOnlyWhatNobodyElseHoldsIsTaken(t *testing.T) {
	held := map[string][]int{"a": {0, 1}, "b": {1, 2}, "c": {2}, "d": {2}}
	got := Sparing([]string{"a", "b", "d"}, held)
	if want := map[string][]int{"a": {0, 1}, "b": {1}, "c": {2}}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, expected %v: a and b alone hold 1", got, want)
	}
	if got := Sparing(nil, held); !reflect.DeepEqual(got, held) {
		t.Errorf("nobody is spared, and %v give", got)
	}
}
