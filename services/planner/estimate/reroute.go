package estimate

import (
	"errors"
	"fmt"
)

// ErrStageLost is returned where some layers have no live holder: rerouting cannot go on, the plan must change.
var ErrStageLost = errors.New("no live holder")

// Symmetric is a plan of equal pipelines with equal stages, some of whose workers have failed.
type Symmetric struct {
	Pipelines       int
	MicroBatches    int // of each pipeline
	ForwardSeconds  float64
	BackwardSeconds float64
	FailedPerStage  []int // an entry a stage
}

// StepSeconds is the step time while the survivors of each stage share its failed workers' micro-batches, whole ones:
// (max over stages of ceil(M*D/(D-f)) + P - 1) * (forward + backward). Without failures it is the plain symmetric
// step. ErrStageLost where a stage has lost all its workers.
func (s Symmetric) StepSeconds() (float64, error) {
	worst := 0
	for stage, failed := range s.FailedPerStage {
		alive := s.Pipelines - failed
		if alive <= 0 {
			return 0, fmt.Errorf("stage %d: %w", stage, ErrStageLost)
		}
		worst = max(worst, divideUp(s.MicroBatches*s.Pipelines, alive))
	}
	return float64(worst+len(s.FailedPerStage)-1) * (s.ForwardSeconds + s.BackwardSeconds), nil
}

// FractionalStepSeconds is StepSeconds as the paper writes it (Chameleon IV-A), with parts of micro-batches: what
// rerouting would cost if they could be cut.
func (s Symmetric) FractionalStepSeconds() (float64, error) {
	worst := 0.0
	for stage, failed := range s.FailedPerStage {
		alive := s.Pipelines - failed
		if alive <= 0 {
			return 0, fmt.Errorf("stage %d: %w", stage, ErrStageLost)
		}
		worst = max(worst, float64(s.MicroBatches*s.Pipelines)/float64(alive))
	}
	return (worst + float64(len(s.FailedPerStage)-1)) * (s.ForwardSeconds + s.BackwardSeconds), nil
}

func divideUp(a, b int) int { return (a + b - 1) / b }

// Place is a stage of a pipeline, both counted from 0.
type Place struct{ Pipeline, Stage int }

// Member is one pipeline of a plan whose pipelines may differ in length, split and share of the batch.
type Member struct {
	MicroBatches int
	Stages       []Range
}

// ReroutedStepSeconds is the step time of any plan while failed places are served by the survivors that hold the same
// layers. For each layer the micro-batches of its failed holders are shared evenly, in whole ones, among its
// survivors; a pipeline takes its own 1F1B time and then the extra work of its most loaded live stage. For equal
// pipelines with equal stages this is Symmetric.StepSeconds. ErrStageLost names the first layer without a survivor.
func ReroutedStepSeconds(layers []Layer, pipelines []Member, transferSeconds float64, failed []Place) (float64, error) {
	down := set(failed)
	extra, err := takenOver(len(layers), pipelines, down, func(p Place) int { return pipelines[p.Pipeline].MicroBatches })
	if err != nil {
		return 0, err
	}
	step := 0.0
	for p, pipeline := range pipelines {
		own := OneForwardOneBackward(OfLayers(layers, pipeline.Stages, pipeline.MicroBatches, transferSeconds))
		worst := 0.0
		for s, stage := range pipeline.Stages {
			if down[Place{p, s}] {
				continue
			}
			load := 0.0
			for l := stage.First; l < stage.End; l++ {
				load += float64(extra[l]) * (layers[l].ForwardSeconds + layers[l].BackwardSeconds)
			}
			worst = max(worst, load)
		}
		step = max(step, own.MakespanSeconds+worst)
	}
	return step, nil
}

// ReroutedPeakBytes is PeakBytes of every pipeline while failed places are served by the survivors: they keep their
// share of the lost stages' activations in flight too. A failed place has 0.
func ReroutedPeakBytes(layers []Layer, pipelines []Member, failed []Place) ([][]int64, error) {
	down := set(failed)
	extra, err := takenOver(len(layers), pipelines, down, func(p Place) int {
		return InFlight(p.Stage, len(pipelines[p.Pipeline].Stages), pipelines[p.Pipeline].MicroBatches)
	})
	if err != nil {
		return nil, err
	}
	peaks := make([][]int64, len(pipelines))
	for p, pipeline := range pipelines {
		peaks[p] = PeakBytes(layers, pipeline.Stages, pipeline.MicroBatches)
		for s, stage := range pipeline.Stages {
			if down[Place{p, s}] {
				peaks[p][s] = 0
				continue
			}
			for l := stage.First; l < stage.End; l++ {
				peaks[p][s] += int64(extra[l]) * layers[l].ActivationBytes
			}
		}
	}
	return peaks, nil
}

func set(places []Place) map[Place]bool {
	members := make(map[Place]bool, len(places))
	for _, place := range places {
		members[place] = true
	}
	return members
}

// takenOver says for each layer how much of its failed holders' load one survivor takes over at most.
func takenOver(layers int, pipelines []Member, down map[Place]bool, load func(Place) int) ([]int, error) {
	alive, orphaned := make([]int, layers), make([]int, layers)
	for p, pipeline := range pipelines {
		for s, stage := range pipeline.Stages {
			for l := stage.First; l < stage.End; l++ {
				if down[Place{p, s}] {
					orphaned[l] += load(Place{p, s})
				} else {
					alive[l]++
				}
			}
		}
	}
	extra := make([]int, layers)
	for l := range extra {
		if alive[l] == 0 {
			return nil, fmt.Errorf("layer %d: %w", l, ErrStageLost)
		}
		extra[l] = divideUp(orphaned[l], alive[l])
	}
	return extra, nil
}
