package main

import (
	"fmt"
	"math/rand/v2"

	"github.com/reknit/reknit/services/restorer/layers"
	"github.com/reknit/reknit/services/restorer/rounds"
	"github.com/reknit/reknit/tests/bench/figures"
	"github.com/reknit/reknit/tests/papers/chameleon"
	"github.com/reknit/reknit/tests/papers/schedule"
)

// A plan's rounds may take so many times what the most loaded node needs: rounds that reach it exactly are hard to
// find, and may not exist.
const roundsOfLeast = 1.25

// allReduces measures the schedules of pipelines of seven, eight and nine stages, where layers differ in size.
func allReduces(r *figures.Report, _ settings) error {
	for nodes := 8; nodes <= 2048; nodes *= 2 {
		random := rand.New(rand.NewPCG(uint64(nodes), 5))
		weights := make([]int64, modelLayers)
		for layer := range weights {
			weights[layer] = 1e6 + random.Int64N(9e6)
		}
		if err := allReduce(r, fmt.Sprintf("%d nodes", nodes), uneven(nodes), weights); err != nil {
			return err
		}
	}
	return nil
}

// uneven is what each of n nodes, a power of two, holds in pipelines of different lengths: of two and three stages
// where there are few nodes.
func uneven(n int) [][]layers.Range {
	lengths := []int{7, 8, 9}
	if n < 24 {
		lengths = []int{3, 2, 3}
	}
	var holdings [][]layers.Range
	for p := 0; len(holdings) < n; p++ {
		stages, left := lengths[p%len(lengths)], n-len(holdings)
		if left <= 9 {
			stages = min(stages, left)
			if left-stages < lengths[0] {
				stages = left // no pipeline is shorter
			}
		}
		for _, stage := range cut(stages) {
			holdings = append(holdings, []layers.Range{stage})
		}
	}
	return holdings
}

// allReduce takes the nanoseconds of each layer; those of a group are their sum.
func allReduce(r *figures.Report, name string, holdings [][]layers.Range, weights []int64) error {
	takes := func(group rounds.Group) (sum int64) {
		for layer := group.Layers.First; layer < group.Layers.End; layer++ {
			sum += weights[layer]
		}
		return sum
	}
	groups, err := rounds.Groups(modelLayers, holdings)
	if err != nil {
		return err
	}
	times, onNode := make([]int64, len(groups)), make([][]int, len(holdings))
	for g, group := range groups {
		times[g] = takes(group)
		for _, node := range group.Nodes {
			onNode[node] = append(onNode[node], g)
		}
	}
	timeline, err := schedule.WrapAround(times, onNode)
	if err != nil {
		return err
	}
	plan, err := rounds.Plan(modelLayers, holdings, takes)
	if err != nil {
		return err
	}
	least, greedy := float64(mostLoaded(holdings, weights)), float64(chameleon.GreedyRounds(holdings, weights))
	row := figures.Row{
		Figure: "all-reduce, " + name + ", no rounds", Unit: "ns", Ours: float64(timeline.Makespan), Target: least,
		Baseline: greedy, BaselineName: "Chameleon's greedy rounds", LeastRatio: 1,
	}
	r.Add(row)
	row.Figure, row.Ours, row.Target = "all-reduce, "+name+", rounds", float64(plan.Nanoseconds), roundsOfLeast*least
	r.Add(row)
	return nil
}

// mostLoaded is what the node with most to reduce takes: no schedule is shorter.
func mostLoaded(holdings [][]layers.Range, weights []int64) int64 {
	most := int64(0)
	for _, held := range holdings {
		load := int64(0)
		for layer := held[0].First; layer < held[0].End; layer++ {
			load += weights[layer]
		}
		most = max(most, load)
	}
	return most
}
