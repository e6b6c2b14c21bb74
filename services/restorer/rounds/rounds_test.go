package rounds_test

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/reknit/reknit/services/restorer/layers"
	"github.com/reknit/reknit/services/restorer/rounds"
)

// pipelines turns stage sizes into what each node holds, pipeline after pipeline.
func pipelines(stageSizes ...[]int) [][]layers.Range {
	var holdings [][]layers.Range
	for _, sizes := range stageSizes {
		first := 0
		for _, size := range sizes {
			holdings = append(holdings, []layers.Range{{First: first, End: first + size}})
			first += size
		}
	}
	return holdings
}

func TestThreeStagesBesideFourNeedTwoRounds(t *testing.T) {
	// Chameleon, figure 4: nine layers as 3+3+3 and as 2+2+2+3.
	schedule, err := rounds.Plan(9, pipelines([]int{3, 3, 3}, []int{2, 2, 2, 3}))
	if err != nil {
		t.Fatal(err)
	}
	group := func(first, end int, nodes ...int) rounds.Group {
		return rounds.Group{Layers: layers.Range{First: first, End: end}, Nodes: nodes}
	}
	want := [][]rounds.Group{
		{group(0, 2, 0, 3), group(3, 4, 1, 4), group(6, 9, 2, 6)},
		{group(2, 3, 0, 4), group(4, 6, 1, 5)},
	}
	if !reflect.DeepEqual(schedule.Rounds, want) || schedule.AtLeast != 2 {
		t.Errorf("rounds %v, at least %d; expected %v", schedule.Rounds, schedule.AtLeast, want)
	}
}

func TestEqualPipelinesNeedOneRound(t *testing.T) {
	schedule, err := rounds.Plan(8, pipelines([]int{4, 4}, []int{4, 4}, []int{4, 4}))
	if err != nil || len(schedule.Rounds) != 1 || len(schedule.Rounds[0]) != 2 {
		t.Errorf("rounds %v, error %v; expected one of two groups", schedule.Rounds, err)
	}
}

func randomHoldings(random *rand.Rand, count int) [][]layers.Range {
	holdings := [][]layers.Range{{{First: 0, End: count}}} // so that every layer has a holder
	for range random.IntN(8) {
		var ranges []layers.Range
		for range random.IntN(4) {
			first := random.IntN(count + 1)
			ranges = append(ranges, layers.Range{First: first, End: first + random.IntN(count-first+1)})
		}
		holdings = append(holdings, ranges)
	}
	return holdings
}

func holdersOf(holdings [][]layers.Range, layer int) []int {
	var nodes []int
	for node, ranges := range holdings {
		if slices.ContainsFunc(ranges, func(r layers.Range) bool { return r.First <= layer && layer < r.End }) {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

func TestEveryLayerIsReducedOnceByAllItsHoldersAndNoNodeIsTwiceInARound(t *testing.T) {
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 6))
		count := 1 + random.IntN(20)
		holdings := randomHoldings(random, count)
		schedule, err := rounds.Plan(count, holdings)
		if err != nil {
			t.Fatal(err)
		}
		reduced := make([]int, count)
		for _, round := range schedule.Rounds {
			busy := make(map[int]bool)
			for _, group := range round {
				for layer := group.Layers.First; layer < group.Layers.End; layer++ {
					reduced[layer]++
					if want := holdersOf(holdings, layer); !reflect.DeepEqual(group.Nodes, want) {
						t.Fatalf("seed %d: layer %d is reduced by %v, held by %v", seed, layer, group.Nodes, want)
					}
				}
				for _, node := range group.Nodes {
					if busy[node] {
						t.Fatalf("seed %d: node %d is twice in round %v", seed, node, round)
					}
					busy[node] = true
				}
			}
		}
		for layer, times := range reduced {
			if times != 1 {
				t.Fatalf("seed %d: layer %d is reduced %d times", seed, layer, times)
			}
		}
		for k := 1; k < len(schedule.Rounds); k++ {
			before, after := schedule.Rounds[k-1], schedule.Rounds[k]
			if before[len(before)-1].Layers.End < after[len(after)-1].Layers.End {
				t.Fatalf("seed %d: round %d has later layers than the one before", seed, k)
			}
		}
	}
}

func TestGroupsAreTheLongestRunsOfLayersWithTheSameHolders(t *testing.T) {
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 7))
		count := 1 + random.IntN(20)
		holdings := randomHoldings(random, count)
		groups, err := rounds.Groups(count, holdings)
		if err != nil {
			t.Fatal(err)
		}
		var want []rounds.Group
		for layer := range count {
			nodes := holdersOf(holdings, layer)
			if last := len(want) - 1; last >= 0 && reflect.DeepEqual(want[last].Nodes, nodes) {
				want[last].Layers.End++
			} else {
				want = append(want, rounds.Group{Layers: layers.Range{First: layer, End: layer + 1}, Nodes: nodes})
			}
		}
		if !reflect.DeepEqual(groups, want) {
			t.Fatalf("seed %d: groups %v, expected %v", seed, groups, want)
		}
	}
}

func TestALayerWithoutHolderOrOutOfBoundsIsRefused(t *testing.T) {
	if _, err := rounds.Plan(3, pipelines([]int{2})); err == nil {
		t.Error("planned an all-reduce of a layer nobody holds")
	}
	if _, err := rounds.Plan(3, pipelines([]int{4})); err == nil {
		t.Error("planned an all-reduce of a layer the model has not")
	}
}
