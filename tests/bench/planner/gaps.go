package main

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/reknit/reknit/tests/bench/figures"
)

// gaps has the first plan of each drawn cluster compared with the bound beside it: what is between may be the bound's
// fault or the plan's. The baseline is a bound that counts the work and nothing else, all nodes sharing it by their
// speed: of the gap to it, what the bound proves that no plan can close is proven away.
func gaps(r *figures.Report) {
	var above, proven []float64
	fmt.Println("the first plan of unequal nodes beside the bound: how far above it, and what of the gap to the work alone is proven away")
	fmt.Printf("%10s %10s %10s %10s\n", "cluster", "nodes", "above", "proven")
	for seed := range uint64(drawnClusters) {
		request := drawn(rand.New(rand.NewPCG(seed, 1)))
		request.SecondsBetweenFailures = 3600
		first, err := planner.Plan(request)
		if err != nil {
			continue // too little memory for any
		}
		step, bound, work := first.Plan.Predicted.StepSeconds, first.Plan.Predicted.StepSecondsLowerBound, 0.0
		for _, layer := range request.Job.Layers {
			work += layer.ForwardSeconds + layer.BackwardSeconds
		}
		speed := 0.0
		for _, node := range request.Nodes {
			speed += node.SpeedFactor
		}
		work *= float64(request.Job.GlobalBatch) / speed
		above, proven = append(above, step/bound-1), append(proven, (bound-work)/(step-work))
		fmt.Printf("%10d %10d %9.1f%% %9.1f%%\n", seed, len(request.Nodes), 100*(step/bound-1), 100*(bound-work)/(step-work))
	}
	slices.Sort(above)
	slices.Sort(proven)
	n := len(above)
	fmt.Printf("%10s %10s %10s %10s %10s %10s %10s\n", "clusters", "", "best 5%", "quarter", "median", "worst 5%", "worst")
	fmt.Printf("%10d %10s %9.1f%% %9.1f%% %9.1f%% %9.1f%% %9.1f%%\n", n, "above", 100*above[n/20], 100*above[n/4],
		100*above[n/2], 100*above[n-1-n/20], 100*above[n-1])
	fmt.Printf("%10s %10s %9.1f%% %9.1f%% %9.1f%% %9.1f%% %9.1f%%\n\n", "", "proven", 100*proven[n-1-n/20],
		100*proven[n-1-n/4], 100*proven[n/2], 100*proven[n/20], 100*proven[0])
	r.Add(figures.Row{
		Figure: "first plan of unequal nodes beside its bound, median", Unit: "times", Ours: 1 + above[n/2],
		Target: mostAboveBound,
	})
}

// mostAboveBound is how many times its bound a first plan may be in the median.
const mostAboveBound = 1.2
