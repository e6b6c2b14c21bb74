package main

import (
	"fmt"

	"github.com/reknit/reknit/services/planner/estimate"
	"github.com/reknit/reknit/services/planner/search"
)

// step is the time of the slowest pipeline of a plan that keeps all limits of the problem.
func step(problem search.Problem, plan search.Plan) (float64, error) {
	if width := len(plan.Pipelines); width < problem.DataParallel.Least || width > problem.DataParallel.Most {
		return 0, fmt.Errorf("%d pipelines, expected %+v", width, problem.DataParallel)
	}
	if nodes := plan.Nodes(); nodes > problem.Nodes || problem.EveryNode && nodes < problem.Nodes {
		return 0, fmt.Errorf("%d nodes of %d", nodes, problem.Nodes)
	}
	slowest, microBatches := 0.0, 0
	for j, pipeline := range plan.Pipelines {
		if err := fits(problem, pipeline); err != nil {
			return 0, fmt.Errorf("pipeline %d: %w", j, err)
		}
		timed := estimate.OfLayers(problem.Layers, pipeline.Stages, pipeline.MicroBatches, problem.TransferSeconds)
		slowest = max(slowest, estimate.OneForwardOneBackward(timed).MakespanSeconds)
		microBatches += pipeline.MicroBatches
	}
	if microBatches != problem.MicroBatches {
		return 0, fmt.Errorf("%d micro-batches of %d", microBatches, problem.MicroBatches)
	}
	return slowest, nil
}

// fits checks one pipeline: its share, its length, its layers and its memory.
func fits(problem search.Problem, pipeline estimate.Member) error {
	length := len(pipeline.Stages)
	if pipeline.MicroBatches < 1 || length < problem.PipelineLength.Least || length > problem.PipelineLength.Most {
		return fmt.Errorf("%d micro-batches on %d stages, expected one or more on %+v", pipeline.MicroBatches, length,
			problem.PipelineLength)
	}
	least, most := 1, len(problem.Layers)
	if problem.Splits == search.Even {
		least, most = len(problem.Layers)/length, (len(problem.Layers)+length-1)/length
	}
	next := 0
	for s, stage := range pipeline.Stages {
		if stage.First != next || stage.Len() < least || stage.Len() > most {
			return fmt.Errorf("stage %d: expected %d to %d layers from %d on, got %v", s, least, most, next, stage)
		}
		next = stage.End
	}
	if next != len(problem.Layers) {
		return fmt.Errorf("%d layers of %d", next, len(problem.Layers))
	}
	for s, peak := range estimate.PeakBytes(problem.Layers, pipeline.Stages, pipeline.MicroBatches) {
		if problem.NodeMemoryBytes > 0 && peak > problem.NodeMemoryBytes {
			return fmt.Errorf("stage %d: %d bytes of %d", s, peak, problem.NodeMemoryBytes)
		}
	}
	return nil
}
