package main

import (
	"slices"

	"github.com/reknit/reknit/services/planner/estimate"
)

type pipelineInput struct {
	Forward      []float64 `json:"forward_us"`
	Backward     []float64 `json:"backward_us"`
	MicroBatches int       `json:"micro_batches"`
	ForwardComm  []float64 `json:"forward_comm_us"`
	BackwardComm []float64 `json:"backward_comm_us"`
}

func solvePipeline(in pipelineInput) (answer, error) {
	schedule := estimate.OneForwardOneBackward(estimate.Pipeline{
		MicroBatches: in.MicroBatches, ForwardSeconds: in.Forward, BackwardSeconds: in.Backward,
		ForwardTransferSeconds: in.ForwardComm, BackwardTransferSeconds: in.BackwardComm,
	})
	return answer{
		"makespan_us": schedule.MakespanSeconds, "stage_finish_us": schedule.StageFinishSeconds,
		"peak_in_flight_activations": schedule.PeakInFlight,
	}, nil
}

type memoryInput struct {
	LayersPerStage []int `json:"layers_per_stage"`
	MicroBatches   int   `json:"micro_batches"`
	Param          int64 `json:"param_bytes"`
	Optimizer      int64 `json:"optimizer_bytes"`
	Gradient       int64 `json:"gradient_bytes"`
	Activation     int64 `json:"activation_bytes"`
	Device         int64 `json:"device_bytes"`
}

func solveMemory(in memoryInput) (answer, error) {
	var layers []estimate.Layer
	var stages []estimate.Range
	for _, count := range in.LayersPerStage {
		stages = append(stages, estimate.Range{First: len(layers), End: len(layers) + count})
		for range count {
			layers = append(layers,
				estimate.Layer{StaticBytes: in.Param + in.Optimizer + in.Gradient, ActivationBytes: in.Activation})
		}
	}
	peaks := estimate.PeakBytes(layers, stages, in.MicroBatches)
	return answer{"peak_bytes_per_stage": peaks, "fits": slices.Max(peaks) <= in.Device}, nil
}
