package main

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/reknit/reknit/services/restorer/layers"
	"github.com/reknit/reknit/services/restorer/replicate"
	"github.com/reknit/reknit/tests/bench/figures"
	"github.com/reknit/reknit/tests/papers/chaos"
)

func TestEverySurvivorHasAPlace(t *testing.T) {
	for nodes := 256; nodes <= 2048; nodes *= 2 {
		c := afterALoss(nodes)
		places := 0
		for _, length := range c.lengths {
			places += length
		}
		if len(c.holds) != nodes-1 || places != nodes-1 {
			t.Errorf("%d nodes: %d survivors and %d places", nodes, len(c.holds), places)
		}
	}
}

func TestUnevenPipelinesAreWhole(t *testing.T) {
	for nodes := 8; nodes <= 2048; nodes *= 2 {
		holdings := uneven(nodes)
		next := 0
		for _, held := range holdings {
			if held[0].First != next {
				t.Fatalf("%d nodes: a stage begins at layer %d, the one before ends at %d", nodes, held[0].First, next)
			}
			next = held[0].End % modelLayers
		}
		if len(holdings) != nodes || next != 0 {
			t.Errorf("%d nodes: %d stages, the last ends at %d", nodes, len(holdings), next)
		}
	}
}

// Either of two neighbours that would be done at one time may send the last shard.
func TestTheLiteralGreedyIsDoneWhenOursIs(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 1))
		neighbours := someNeighbours(1+random.IntN(9), random)
		shards := int64(len(neighbours)) + random.Int64N(5000)
		fetch := chaos.Fetch(neighbours, shards)
		fetch.EachHolder = true
		fetched, err := replicate.PlanFetch(fetch)
		if err != nil {
			t.Fatal(err)
		}
		lists, makespan := chaos.Greedy(neighbours, shards)
		listed := int64(0)
		for _, list := range lists {
			listed += int64(len(list))
		}
		if ours := chaos.Finish(neighbours, chaos.Counts(fetched, len(neighbours))); listed != shards || makespan != ours {
			t.Fatalf("seed %d: it hands out %d shards of %d, done at %d, ours at %d", seed, listed, shards, makespan, ours)
		}
	}
}

func TestTheMostLoadedNodeNeedsAllItsLayers(t *testing.T) {
	holdings := [][]layers.Range{{{First: 0, End: 3}}, {{First: 3, End: 6}}, {{First: 2, End: 4}}}
	if most := mostLoaded(holdings, []int64{1, 1, 1, 5, 5, 5}); most != 15 {
		t.Fatalf("the most loaded node needs %d ns, want 15", most)
	}
}

// Nodes 0 and 1 hold layer 0, node 1 also layer 1; nodes 2 and 3 lack one each.
func TestTheSlowestSetOfNeedsSetsTheTime(t *testing.T) {
	fetch := replicate.Fetch{
		LayerBytes: []int64{300, 600}, ShardBytes: 1, Holders: [][]int{{0, 1}, {1}},
		Needs:                 []replicate.Need{{Node: 2, Layer: 0}, {Node: 3, Layer: 1}},
		EgressBytesPerSecond:  []float64{10, 100, 1, 1},
		IngressBytesPerSecond: []float64{1e9, 1e9, 1e9, 1e9},
		LinkBytesPerSecond:    [][]float64{{0, 1, 50, 1}, {1, 0, 50, 200}, {1, 1, 0, 1}, {1, 1, 1, 0}},
	}
	if got, want := slowestSet(fetch), 900.0/110; math.Abs(got-want) > 1e-9 { // both needs: all that both nodes send
		t.Fatalf("%v s, want %v", got, want)
	}
	fetch.LinkBytesPerSecond[1][3] = 20 // layer 1 alone, over its only link
	if got := slowestSet(fetch); got != 30 {
		t.Fatalf("%v s, want 30", got)
	}
	if got := fromOne(fetch); got != 30 {
		t.Fatalf("layer 0 from node 1: %v s, want 30", got)
	}
}

func TestFetchesAndAllReducesReachTheirTargets(t *testing.T) {
	var r figures.Report
	if err := fetches(&r, settings{}); err != nil {
		t.Fatal(err)
	}
	if err := allReduces(&r, settings{}); err != nil {
		t.Fatal(err)
	}
	for _, row := range r.Rows {
		if !row.Holds {
			t.Errorf("%s does not hold: %+v", row.Figure, row)
		}
	}
}

func TestScipyFindsTheOptimum(t *testing.T) {
	rival, err := startScipy(python)
	if err != nil {
		t.Skip(err)
	}
	file, err := rival.lay("three", [][]int64{{4, 1, 3}, {2, 0, 5}, {3, 2, 2}}, 0.5)
	if err != nil {
		t.Fatal(err)
	}
	if _, total, err := rival.solve(file, 3); err != nil || total != 2.5 {
		t.Errorf("total %v, error %v; want 2.5", total, err)
	}
	if err := rival.stop(); err != nil {
		t.Error(err)
	}
}

func TestWithoutScipyThereIsAReason(t *testing.T) {
	if _, err := startScipy("/nowhere/python3"); err == nil {
		t.Fatal("started a python that is not there")
	}
	if _, err := startScipy("/bin/false"); err == nil {
		t.Fatal("started something that is no python")
	}
}
