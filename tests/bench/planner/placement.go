package main

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/reknit/reknit/tests/bench/figures"
	"github.com/reknit/reknit/tests/papers/dtfm"
)

// Efforts of the search. The quick one finds what is proven to be best, the long one improves on the rest; the proof
// looks at mixtures only.
var (
	quick  = dtfm.Effort{Moves: 200_000, Mixtures: 100_000}
	long   = dtfm.Effort{Moves: 2_500_000, Mixtures: 100_000}
	proof  = dtfm.Effort{Moves: 50_000, Mixtures: 12_000_000}
	random = 5000 // layouts
)

// Seconds allowed to reach the best cost known: where it is proven, and on the others.
const (
	quickSeconds = 1
	longSeconds  = 10
)

// placement measures the search on DT-FM's networks, with its bound, and where moving costs something.
func placement(r *figures.Report, networks []network) error {
	fmt.Println("placement of 64 devices as 8 pipelines of 8 stages: seconds of communication in a step")
	fmt.Printf("%-24s %10s %8s %10s %10s %8s %10s %10s\n", "network", "ours", "CPU s", "bound", "best known", "gap",
		"random", "proof s")
	placed, efforts := make([]dtfm.Placement, len(networks)), make([]dtfm.Effort, len(networks))
	for i, n := range networks {
		var err error
		if placed[i], efforts[i], err = measure(r, n); err != nil {
			return fmt.Errorf("%s: %w", n.name, err)
		}
	}
	fmt.Println("\nthe same where devices sit in the order of their regions, a stage is 2.3 GB, and a layout lasts 100 steps: seconds until then")
	fmt.Printf("%-24s %10s %10s %10s %12s\n", "network", "ours", "staying", "moving", "ours fetches")
	for i, n := range networks {
		if err := keep(r, n, placed[i], efforts[i]); err != nil {
			return fmt.Errorf("%s: %w", n.name, err)
		}
	}
	for seed := range uint64(6) {
		n := generated(seed)
		found, _, err := timed(n.grid, long)
		if err != nil {
			return fmt.Errorf("%s: %w", n.name, err)
		}
		networks, placed = append(networks, n), append(placed, found)
	}
	return byThePlanner(r, networks, placed)
}

// measure returns the layout, and the effort it took.
func measure(r *figures.Report, n network) (dtfm.Placement, dtfm.Effort, error) {
	effort := quick
	placed, took, err := timed(n.grid, effort)
	if err != nil {
		return placed, effort, err
	}
	certificate, proving, err := timed(n.grid, proof)
	if err != nil {
		return placed, effort, err
	}
	allowed := float64(quickSeconds)
	bound := certificate.LowerBoundSeconds
	if cost := placed.CommunicationSeconds(); bound < cost*(1-1e-9) { // quick was not enough, or is not known to be
		allowed, effort = longSeconds, long
		if placed, took, err = timed(n.grid, effort); err != nil {
			return placed, effort, err
		}
	}
	cost, dice := placed.CommunicationSeconds(), dice(n.grid)
	gap := "optimal"
	if cost > bound*(1+1e-9) {
		gap = fmt.Sprintf("%.1f %%", 100*(cost/bound-1))
	}
	known := ""
	if n.best > 0 {
		known = fmt.Sprintf("%.4f", n.best)
	}
	fmt.Printf("%-24s %10.4f %8.2f %10.4f %10s %8s %10.4f %10.2f\n", n.name, cost, took, bound, known, gap, dice,
		proving)
	r.Add(figures.Row{Figure: "communication, " + n.name, Unit: "s", Ours: cost, Baseline: dice,
		BaselineName: "best of 5,000 random layouts", Target: n.best, LeastRatio: 1})
	r.Add(figures.Row{Figure: "lower bound, " + n.name, Unit: "s", Ours: bound, Target: cost})
	r.Add(figures.Row{Figure: "search, " + n.name, Unit: "CPU s", Ours: took, Target: allowed})
	return placed, effort, nil
}

func timed(grid dtfm.Grid, effort dtfm.Effort) (dtfm.Placement, float64, error) {
	before := figures.Spent()
	placed, err := grid.Place(effort)
	return placed, (figures.Spent() - before).Seconds(), err
}

// dice is the cheapest of many random layouts, each with its stages in the best order.
func dice(grid dtfm.Grid) float64 {
	source, least := rand.New(rand.NewPCG(1, 0)), math.Inf(1)
	for range random {
		order := source.Perm(grid.Pipelines * grid.Stages)
		var groups [][]int
		for stage := range grid.Stages {
			groups = append(groups, order[stage*grid.Pipelines:(stage+1)*grid.Pipelines])
		}
		dataParallel, pipeline := grid.Cost(groups)
		least = min(least, dataParallel+pipeline)
	}
	return least
}

// keep searches from a layout that is there: devices in order, so that each region's are a stage or nearly so.
func keep(r *figures.Report, n network, free dtfm.Placement, effort dtfm.Effort) error {
	const stateBytes, steps = 2.3e9, 100 // three layers of GPT-3 XL with their optimizer; some hours
	grid := n.grid
	grid.StateBytes, grid.HorizonSteps = stateBytes, steps
	for stage := range grid.Stages {
		var group []int
		for pipeline := range grid.Pipelines {
			group = append(group, stage*grid.Pipelines+pipeline)
		}
		grid.Previous = append(grid.Previous, group)
	}
	kept, err := grid.Place(effort)
	if err != nil {
		return err
	}
	stay := grid.Layout(grid.Previous)
	move := grid.Layout(free.Groups)
	fmt.Printf("%-24s %10.1f %10.1f %10.1f %12.1f\n", n.name, kept.Seconds(), stay.Seconds(), move.Seconds(),
		kept.MigrationSeconds)
	r.Add(figures.Row{
		Figure: "100 steps and the move, " + n.name, Unit: "s", Ours: kept.Seconds(),
		Baseline:     min(stay.Seconds(), move.Seconds()),
		BaselineName: "the better of staying and moving to the cheapest layout",
		LeastRatio:   1,
	})
	return nil
}
