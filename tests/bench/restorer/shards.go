package main

import (
	"fmt"
	"math/rand/v2"

	"github.com/reknit/reknit/services/restorer/replicate"
	"github.com/reknit/reknit/tests/bench/figures"
	"github.com/reknit/reknit/tests/papers/chaos"
)

// shards measures Chaos's P4 beside its greedy algorithm.
func shards(r *figures.Report, s settings) error {
	for _, c := range []struct {
		shards     int64
		neighbours int
		seconds    float64 // allowed
	}{
		{1e8, 16, 50e-6},
		{1e6, 1000, 1e-3},
	} {
		neighbours := someNeighbours(c.neighbours, rand.New(rand.NewPCG(uint64(c.neighbours), 3)))
		if err := shardsOf(r, neighbours, c.shards, c.seconds, s.literal); err != nil {
			return err
		}
	}
	return nil
}

// shardsOf leaves the literal algorithm with fewer shards where it may not have as many.
func shardsOf(r *figures.Report, neighbours []chaos.Neighbour, count int64, allowed float64, most int64) error {
	var found replicate.Fetched
	var err error
	fetch := chaos.Fetch(neighbours, count)
	fetch.EachHolder = true
	took := figures.Seconds(func() { found, err = replicate.PlanFetch(fetch) })
	if err != nil {
		return err
	}
	baseline, faster := "Chaos's greedy, literal", 1.0
	literal := max(min(count, most), int64(len(neighbours)))
	if literal < count {
		baseline, faster = fmt.Sprintf("%s, %d shards", baseline, literal), 0 // ours hands out more
		fetch.LayerBytes[0] = literal
		if found, err = replicate.PlanFetch(fetch); err != nil {
			return err
		}
	}
	ours := chaos.Finish(neighbours, chaos.Counts(found, len(neighbours)))
	theirs := int64(0)
	slow := figures.Once(func() { _, theirs = chaos.Greedy(neighbours, literal) })
	name := fmt.Sprintf("%.0e shards, %d neighbours", float64(count), len(neighbours))
	r.Add(figures.Row{Figure: "allocation, " + name, Unit: "CPU s", Ours: took, Target: allowed, Baseline: slow,
		BaselineName: baseline, LeastRatio: faster})
	r.Add(figures.Row{Figure: "makespan, " + name, Unit: "s", Ours: float64(ours) / 1e9,
		Baseline: float64(theirs) / 1e9, BaselineName: baseline, LeastRatio: 1})
	return nil
}

// someNeighbours have links of 0.1 to 1 Gbit/s, shards of 8 KiB, and begin within half a second.
func someNeighbours(count int, random *rand.Rand) []chaos.Neighbour {
	neighbours := make([]chaos.Neighbour, count)
	for u := range neighbours {
		neighbours[u] = chaos.Neighbour{
			StartNanoseconds: random.Int64N(500e6), ShardNanoseconds: 65_536 + random.Int64N(589_824),
		}
	}
	return neighbours
}
