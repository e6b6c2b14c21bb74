package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/reknit/reknit/services/planner/estimate"
	"github.com/reknit/reknit/services/planner/search"
	"github.com/reknit/reknit/tests/papers/chameleon"
)

type batchInput struct {
	MicroBatches int     `json:"global_micro_batches"`
	Lengths      []int   `json:"pipeline_lengths"`
	Layers       int     `json:"layers"`
	Forward      float64 `json:"forward_us_per_layer"`
	Backward     float64 `json:"backward_us_per_layer"`
	Split        string  `json:"layer_split"`
	Comm         float64 `json:"comm_us"`
}

func solveBatchDistribution(in batchInput) (answer, error) {
	if want := "even, leftover layers to the earliest stages"; in.Split != want {
		return nil, fmt.Errorf("layer_split: expected %q, got %q", want, in.Split)
	}
	layers := equal(in.Layers, estimate.Layer{ForwardSeconds: in.Forward, BackwardSeconds: in.Backward})
	seconds := func(pipeline, microBatches int) float64 {
		stages := earlyLeftovers(in.Layers, in.Lengths[pipeline])
		return estimate.OneForwardOneBackward(estimate.OfLayers(layers, stages, microBatches, in.Comm)).MakespanSeconds
	}
	slowest := func(batches []int) float64 {
		step := 0.0
		for j, batch := range batches {
			step = max(step, seconds(j, batch))
		}
		return step
	}
	paper := chameleon.ProportionalBatches(in.MicroBatches, in.Lengths)
	best := search.OptimalBatches(in.MicroBatches, len(in.Lengths), seconds)
	if sum := total(best); len(best) != len(in.Lengths) || slices.Min(best) < 1 || sum != in.MicroBatches {
		return nil, fmt.Errorf("distribution: expected %d micro-batches, at least one each, got %v", in.MicroBatches,
			best)
	}
	return answer{
		"paper_rule": paper, "paper_rule_step_us": slowest(paper), "optimal_step_us": slowest(best),
		"distribution": best,
	}, nil
}

func equal(count int, layer estimate.Layer) []estimate.Layer {
	return slices.Repeat([]estimate.Layer{layer}, count)
}

func total(values []int) int {
	sum := 0
	for _, value := range values {
		sum += value
	}
	return sum
}

// earlyLeftovers splits layers evenly; the first stages have one more where that does not come out.
func earlyLeftovers(layers, stages int) []estimate.Range {
	var split []estimate.Range
	next := 0
	for s := range stages {
		size := layers / stages
		if s < layers%stages {
			size++
		}
		split = append(split, estimate.Range{First: next, End: next + size})
		next += size
	}
	return split
}

type splitInput struct {
	Stages       int       `json:"stages"`
	Forward      []float64 `json:"forward_us"`
	Backward     []float64 `json:"backward_us"`
	Static       []int64   `json:"static_mem"`
	Activation   []int64   `json:"activation_mem"`
	Capacity     int64     `json:"mem_capacity"`
	MicroBatches int       `json:"micro_batches"`
	Comm         float64   `json:"comm_us"`
}

func solveLayerSplit(in splitInput) (answer, error) {
	problem := search.Problem{
		Nodes: in.Stages, MicroBatches: in.MicroBatches, TransferSeconds: in.Comm,
		DataParallel:   search.Limits{Least: 1, Most: 1},
		PipelineLength: search.Limits{Least: in.Stages, Most: in.Stages},
	}
	for i := range in.Forward {
		problem.Layers = append(problem.Layers, estimate.Layer{
			ForwardSeconds: in.Forward[i], BackwardSeconds: in.Backward[i], StaticBytes: in.Static[i],
			ActivationBytes: in.Activation[i],
		})
	}
	result := answer{}
	return result, errors.Join(
		addBest(result, "best_us_ignoring_memory", "split_ignoring_memory", problem, 0, search.Contiguous),
		addBest(result, "best_us_any_contiguous_split_that_fits", "split", problem, in.Capacity, search.Contiguous),
		addBest(result, "best_us_even_family_that_fits", "even_split", problem, in.Capacity, search.Even),
	)
}

type planInput struct {
	Nodes        int     `json:"nodes"`
	Layers       int     `json:"layers"`
	MicroBatches int     `json:"global_micro_batches"`
	Forward      float64 `json:"forward_us_per_layer"`
	Backward     float64 `json:"backward_us_per_layer"`
	Comm         float64 `json:"comm_us"`
	Width        [2]int  `json:"dp_range"`
	Length       [2]int  `json:"pp_range"`
	Static       int64   `json:"static_mem_per_layer"`
	Activation   int64   `json:"activation_mem_per_layer"`
	Capacity     int64   `json:"mem_capacity"`
	Splits       string  `json:"split_space"`
}

func solvePlanSearch(in planInput) (answer, error) {
	if want := "even (floor/ceil), leftover layers anywhere"; in.Splits != want {
		return nil, fmt.Errorf("split_space: expected %q, got %q", want, in.Splits)
	}
	problem := search.Problem{
		Nodes: in.Nodes, MicroBatches: in.MicroBatches, TransferSeconds: in.Comm,
		Layers: equal(in.Layers, estimate.Layer{
			ForwardSeconds: in.Forward, BackwardSeconds: in.Backward, StaticBytes: in.Static,
			ActivationBytes: in.Activation,
		}),
		DataParallel:   search.Limits{Least: in.Width[0], Most: in.Width[1]},
		PipelineLength: search.Limits{Least: in.Length[0], Most: in.Length[1]},
	}
	everyNode := problem
	everyNode.EveryNode = true
	result := answer{}
	return result, errors.Join(
		addBest(result, "best_step_us_all_nodes_used", "plan", everyNode, in.Capacity, search.Even),
		addBest(result, "best_step_us_idle_nodes_allowed", "plan_with_idle_nodes", problem, in.Capacity, search.Even),
	)
}

// addBest answers null where there is no plan. The step is computed anew from the plan.
func addBest(result answer, stepKey, planKey string, problem search.Problem, capacity int64,
	splits search.Family) error {
	problem.NodeMemoryBytes, problem.Splits = capacity, splits
	found, err := search.Best(problem)
	if errors.Is(err, search.ErrInfeasible) {
		result[stepKey] = nil
		return nil
	}
	if err != nil {
		return err
	}
	result[planKey] = pipelines(found.Pipelines)
	if result[stepKey], err = step(problem, found.Plan); err != nil {
		return fmt.Errorf("%s: %w", planKey, err)
	}
	return nil
}

// pipeline is how a plan is written.
type pipeline struct {
	MicroBatches int      `json:"micro_batches"`
	Stages       [][2]int `json:"stages"`
}

func pipelines(members []estimate.Member) []pipeline {
	var list []pipeline
	for _, member := range members {
		written := pipeline{MicroBatches: member.MicroBatches}
		for _, stage := range member.Stages {
			written.Stages = append(written.Stages, [2]int{stage.First, stage.End})
		}
		list = append(list, written)
	}
	return list
}
