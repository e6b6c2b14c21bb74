package schedule

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func unequal() Layout {
	return Layout{Pipelines: []Pipeline{pipeline("a", 1, 3, 6), pipeline("b", 1, 2, 4, 6)}}
}

// roundsOf puts every segment of layers with the same holders into a round of its own.
func roundsOf(layout Layout) [][]Group {
	layers := layout.Pipelines[0].Stages[len(layout.Pipelines[0].Stages)-1].End
	var rounds [][]Group
	for layer := range layers {
		holders := layout.holders(layer)
		if last := len(rounds) - 1; last >= 0 && slices.Equal(rounds[last][0].Nodes, holders) {
			rounds[last][0].End++
		} else {
			rounds = append(rounds, []Group{{First: layer, End: layer + 1, Nodes: holders}})
		}
	}
	return rounds
}

func TestEveryHeldLayerIsReducedOnceInTheRoundsOrder(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 4))
		layout := randomLayout(random)
		rounds := roundsOf(layout)
		if random.IntN(2) == 0 { // a planner may leave out what needs no exchange
			rounds = slices.DeleteFunc(rounds, func(groups []Group) bool { return len(groups[0].Nodes) == 1 })
		}
		for _, p := range layout.Pipelines {
			for _, stage := range p.Stages {
				reductions, err := layout.Reductions(rounds, stage.Node)
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				checkReductions(t, seed, layout, stage, reductions)
			}
		}
	}
}

func checkReductions(t *testing.T, seed uint64, layout Layout, stage Stage, reductions []Reduction) {
	t.Helper()
	times := map[int]int{}
	for i, reduction := range reductions {
		if i > 0 && reductions[i-1].Round > reduction.Round {
			t.Fatalf("seed %d: %q: round %d after %d", seed, stage.Node, reduction.Round, reductions[i-1].Round)
		}
		for layer := reduction.First; layer < reduction.End; layer++ {
			times[layer]++
		}
	}
	for layer := stage.First; layer < stage.End; layer++ {
		want := 1
		if layout.lost(stage.Node) {
			want = 0
		}
		if times[layer] != want {
			t.Fatalf("seed %d: %q reduces layer %d %d times: expected %d", seed, stage.Node, layer, times[layer], want)
		}
	}
}

func TestASyncThatMissesAHolderIsRefused(t *testing.T) {
	for name, rounds := range map[string][][]Group{
		"no group for a shared layer": {{{0, 2, []string{"a0", "b0"}}}},
		"a group without a holder":    {{{0, 3, []string{"a0", "b0"}}}},
		"a layer in two groups": {{{0, 2, []string{"a0", "b0"}}}, {{1, 2, []string{"a0", "b0"}}},
			{{2, 3, []string{"a0", "b1"}}}},
		"a group of no layers": {{{2, 2, []string{"a0", "b0"}}}, {{0, 2, []string{"a0", "b0"}}},
			{{2, 3, []string{"a0", "b1"}}}},
		"a node twice in a group": {{{0, 2, []string{"a0", "b0", "b0"}}}, {{2, 3, []string{"a0", "b1"}}}},
	} {
		if reductions, err := unequal().Reductions(rounds, "a0"); err == nil {
			t.Errorf("%s: got %v: expected an error", name, reductions)
		}
	}
}

func TestANodeWithoutAPlaceReducesNothing(t *testing.T) {
	reductions, err := unequal().Reductions(roundsOf(unequal()), "spare")
	if err != nil || len(reductions) != 0 {
		t.Errorf("got %v, %v: expected nothing", reductions, err)
	}
}

func TestSlicesTileTheVector(t *testing.T) {
	for length := range 20 {
		for members := 1; members <= 6; members++ {
			next := 0
			for member := range members {
				first, end := slice(length, members, member)
				if first != next || end-first > length/members+1 {
					t.Fatalf("member %d of %d has [%d, %d) of %d: expected an even part from %d on", member, members, first, end,
						length, next)
				}
				next = end
			}
			if next != length {
				t.Fatalf("%d members cover %d of %d", members, next, length)
			}
		}
	}
}

func TestThePiecesOfAPartitionTileItOverItsKeepers(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 9))
		nodes := []string{"a", "b", "c", "d", "e"}[:1+random.IntN(5)]
		r := Reduction{Group: Group{End: 1, Nodes: nodes}, Keepers: make([][]string, 1+random.IntN(4))}
		for z := range r.Keepers {
			for _, at := range random.Perm(len(nodes))[:1+random.IntN(len(nodes))] {
				r.Keepers[z] = append(r.Keepers[z], nodes[at])
			}
		}
		length := random.IntN(40)
		times := make([]int, length)
		for _, node := range nodes {
			for _, piece := range r.Pieces(length, node) {
				if !r.Keeps(node, piece.Partition) {
					t.Fatalf("seed %d: %q sums a part of partition %d of %v", seed, node, piece.Partition, r.Keepers)
				}
				for i := piece.First; i < piece.End; i++ {
					times[i]++
					if z := i; length*piece.Partition/len(r.Keepers) > z || z >= length*(piece.Partition+1)/len(r.Keepers) {
						t.Fatalf("seed %d: element %d of %d is not of partition %d of %d", seed, i, length, piece.Partition,
							len(r.Keepers))
					}
				}
			}
		}
		for i, sums := range times {
			if sums != 1 {
				t.Fatalf("seed %d: element %d of %d is summed %d times by the keepers %v", seed, i, length, sums, r.Keepers)
			}
		}
	}
}

func TestEachPartitionIsKeptByTheLivingHoldersWhosePipelinesKeepIt(t *testing.T) {
	layout := Layout{Pipelines: []Pipeline{pipeline("a", 1, 3, 6), pipeline("b", 1, 3, 6), pipeline("c", 1, 6)}}
	layout.Pipelines[0].Partitions, layout.Pipelines[1].Partitions, layout.Pipelines[2].Partitions = []int{0}, []int{1}, []int{0, 1}
	reductions, err := layout.Reductions(roundsOf(layout), "a1")
	if err != nil {
		t.Fatal(err)
	}
	want := [][]string{{"a1", "c0"}, {"b1", "c0"}}
	if got := reductions[0].Keepers; !slices.EqualFunc(got, want, slices.Equal) || !reductions[0].Spreads() {
		t.Errorf("keepers are %q: expected %q", got, want)
	}
	layout.Pipelines[2].Partitions = []int{1}
	layout.Reroutes = []Reroute{{From: "a1", To: "b1", MicroBatches: 1}}
	if got, err := layout.Reductions(roundsOf(layout), "b1"); err == nil {
		t.Errorf("a partition whose only keeper is lost: got %v", got)
	}
}
