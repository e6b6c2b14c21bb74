package main

import (
	"fmt"
	"math"
	"slices"

	"github.com/reknit/reknit/services/planner/estimate"
	"github.com/reknit/reknit/services/planner/policy"
	"github.com/reknit/reknit/tests/papers/chameleon"
)

type rerouteInput struct {
	Pipelines    int
	Stages       int
	MicroBatches int     `json:"micro_batches_per_pipeline"`
	Failed       []int   `json:"failed_workers_per_stage"`
	Forward      float64 `json:"forward_us"`
	Backward     float64 `json:"backward_us"`
}

func solveReroute(in rerouteInput) (answer, error) {
	if len(in.Failed) != in.Stages || slices.Min(in.Failed) < 0 || slices.Max(in.Failed) > in.Pipelines {
		return nil, fmt.Errorf("failed_workers_per_stage: expected %d of 0 to %d, got %v", in.Stages, in.Pipelines,
			in.Failed)
	}
	unharmed, err := reroute(in.situation(make([]int, in.Stages)))
	if err != nil {
		return nil, err
	}
	result := answer{
		"symmetric_step_us_without_failures": unharmed,
		"recoverable":                        false, "step_us_whole_micro_batches": nil, "step_us_fractional": nil,
	}
	if slices.Contains(in.Failed, in.Pipelines) { // nobody is left of a stage
		return result, nil
	}
	rerouted, err := reroute(in.situation(in.Failed))
	if err != nil {
		return nil, err
	}
	result["recoverable"], result["step_us_whole_micro_batches"] = true, rerouted
	result["step_us_fractional"] = chameleon.RerouteSeconds(in.Pipelines, in.MicroBatches, in.Failed, in.Forward,
		in.Backward)
	return result, nil
}

// reroute is the step time of the planner's policy.
func reroute(s policy.Situation) (float64, error) {
	named, err := policy.Named("reroute")
	if err != nil {
		return 0, err
	}
	candidates, err := named.Propose(s)
	if err != nil || len(candidates) != 1 {
		return 0, fmt.Errorf("expected one candidate, got %d: %w", len(candidates), err)
	}
	return candidates[0].StepSeconds, nil
}

// situation is equal pipelines of one layer a stage, the first of whose workers failed.
func (in rerouteInput) situation(failed []int) policy.Situation {
	s := policy.Situation{MicroBatches: in.Pipelines * in.MicroBatches}
	for range in.Stages {
		s.Layers = append(s.Layers, estimate.Layer{ForwardSeconds: in.Forward, BackwardSeconds: in.Backward})
	}
	s.StateBytes, s.GradientBytes = make([]int64, in.Stages), make([]int64, in.Stages)
	for p := range in.Pipelines {
		pipeline := policy.Pipeline{MicroBatches: in.MicroBatches}
		for stage := range in.Stages {
			node := fmt.Sprintf("n%d-%d", p, stage)
			layers := estimate.Range{First: stage, End: stage + 1}
			pipeline.Stages = append(pipeline.Stages, policy.Stage{Node: node, Layers: layers})
			if p >= failed[stage] {
				s.Nodes, s.MemoryBytes = append(s.Nodes, node), append(s.MemoryBytes, math.MaxInt64)
			}
		}
		s.Current = append(s.Current, pipeline)
	}
	return s
}
