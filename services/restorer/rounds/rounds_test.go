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

// perLayer takes so long for each layer, and for each group.
func perLayer(layer, group int64) func(rounds.Group) int64 {
	return func(g rounds.Group) int64 { return int64(g.Layers.End-g.Layers.First)*layer + group }
}

func TestThreeStagesBesideFourFillThreeRoundsLayerByLayer(t *testing.T) {
	// Chameleon, figure 4: nine layers as 3+3+3 and as 2+2+2+3. In groups they take two rounds, of three layers and
	// two.
	holdings := pipelines([]int{3, 3, 3}, []int{2, 2, 2, 3})
	group := func(first, end int, nodes ...int) rounds.Group {
		return rounds.Group{Layers: layers.Range{First: first, End: end}, Nodes: nodes}
	}
	apart, err := rounds.Plan(9, holdings, perLayer(10, 0))
	if err != nil || len(apart.Rounds) != 3 || apart.Nanoseconds != 30 || apart.AtLeast != 30 {
		t.Errorf("%+v, error %v; expected three rounds of one layer each", apart, err)
	}
	together, err := rounds.Plan(9, holdings, perLayer(10, 100)) // what a round takes to begin counts most
	want := [][]rounds.Group{
		{group(0, 2, 0, 3), group(3, 4, 1, 4), group(6, 9, 2, 6)},
		{group(2, 3, 0, 4), group(4, 6, 1, 5)},
	}
	if err != nil || !reflect.DeepEqual(together.Rounds, want) || together.Nanoseconds != 250 {
		t.Errorf("%+v, error %v; expected %v", together, err, want)
	}
}

func TestEqualPipelinesNeedOneRound(t *testing.T) {
	schedule, err := rounds.Plan(8, pipelines([]int{4, 4}, []int{4, 4}, []int{4, 4}), perLayer(1, 0))
	if err != nil || len(schedule.Rounds) != 1 || len(schedule.Rounds[0]) != 2 {
		t.Errorf("rounds %v, error %v; expected one of two groups", schedule.Rounds, err)
	}
}

// The twin tries every colouring of the groups, and of the layers.
func TestAPlanTakesNoLongerThanAnyRoundsOfGroupsOrOfLayers(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 8))
		count := 1 + random.IntN(7)
		holdings, times, begin := randomHoldings(random, count), randomWeights(random, count), random.Int64N(4)
		takes := func(g rounds.Group) int64 {
			total := begin
			for layer := g.Layers.First; layer < g.Layers.End; layer++ {
				total += times[layer]
			}
			return total
		}
		schedule, err := rounds.Plan(count, holdings, takes)
		if err != nil {
			t.Fatal(err)
		}
		groups, err := rounds.Groups(count, holdings)
		if err != nil {
			t.Fatal(err)
		}
		var single []rounds.Group
		for layer := range count {
			single = append(single,
				rounds.Group{Layers: layers.Range{First: layer, End: layer + 1}, Nodes: holdersOf(holdings, layer)})
		}
		if want := min(leastSum(groups, holdings, takes),
			leastSum(single, holdings, takes)); schedule.Nanoseconds != want {
			t.Fatalf("seed %d: takes %d, best is %d", seed, schedule.Nanoseconds, want)
		}
	}
}

// leastSum tries every way to put groups into rounds.
func leastSum(groups []rounds.Group, holdings [][]layers.Range, takes func(rounds.Group) int64) int64 {
	weights, devices := make([]int64, len(groups)), make([][]int, len(holdings))
	for g, group := range groups {
		weights[g] = takes(group)
		for _, node := range group.Nodes {
			devices[node] = append(devices[node], g)
		}
	}
	return bestCost(weights, devices)
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
		schedule, err := rounds.Plan(count, holdings, perLayer(1, random.Int64N(3)))
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
	if _, err := rounds.Plan(3, pipelines([]int{2}), perLayer(1, 0)); err == nil {
		t.Error("planned an all-reduce of a layer nobody holds")
	}
	if _, err := rounds.Plan(3, pipelines([]int{4}), perLayer(1, 0)); err == nil {
		t.Error("planned an all-reduce of a layer the model has not")
	}
	if _, err := rounds.Plan(3, pipelines([]int{3}), perLayer(-1, 0)); err == nil {
		t.Error("planned an all-reduce that takes less than no time")
	}
}

// Colouring takes about the square of the groups, so a plan of thousands of layers has few more groups than its holders cut.
func TestHoweverManyLayersThereAreFewGroupsAreColoured(t *testing.T) {
	const count = 4096
	for name, holdings := range map[string][][]layers.Range{
		"replicas":                       {{{First: 0, End: count}}, {{First: 0, End: count}}},
		"pipelines of two and of three":  {{{First: 0, End: 2000}}, {{First: 2000, End: count}}, {{First: 0, End: 1300}}, {{First: 1300, End: 2700}}, {{First: 2700, End: count}}},
		"pipelines of one and of a pair": {{{First: 0, End: count}}, {{First: 0, End: 1}}, {{First: 1, End: count}}},
	} {
		weighed := 0
		schedule, err := rounds.Plan(count, holdings, func(group rounds.Group) int64 {
			weighed++
			return 1000 * int64(group.Layers.End-group.Layers.First)
		})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if weighed > 300 {
			t.Errorf("%s: %d groups were weighed", name, weighed)
		}
		if reduced := layersOf(schedule); reduced != count {
			t.Errorf("%s: %d layers of %d are reduced", name, reduced, count)
		}
	}
}

func layersOf(schedule rounds.Schedule) (count int) {
	for _, round := range schedule.Rounds {
		for _, group := range round {
			count += group.Layers.End - group.Layers.First
		}
	}
	return count
}
