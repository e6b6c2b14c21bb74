package training

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/machine/speed"
	"github.com/reknit/reknit/services/trainer/gradient"
	"github.com/reknit/reknit/services/trainer/internal/state"
	"github.com/reknit/reknit/services/trainer/model"
)

// worker runs steps under an assignment.
type worker struct {
	config  Config
	network Network
	state   *state.State
	part    assignment
	phase   phase

	adam    model.Adam // of the last step begun
	speed   speed.Profiler
	passed  time.Duration // of the step's passes so far, without what they waited for
	scratch *model.Scratch
	sums    map[int]*gradient.Accumulator // by layer
	summed  uint64                        // completed steps, the last of which the sums are of; 0: they are of no step
	loss    *gradient.Accumulator
	spare   map[int][]*model.Activations // by layer: room that is free to use
}

func newWorker(config Config, network Network, state *state.State) *worker {
	return &worker{
		config: config, network: network, state: state,
		scratch: model.NewScratch(config.Shape), loss: gradient.NewAccumulator(1),
	}
}

// take makes an assignment the one that steps run under.
func (w *worker) take(a assignment) {
	w.part = a
	w.spare = map[int][]*model.Activations{}
	w.sums = map[int]*gradient.Accumulator{}
	for layer := a.layers.First; layer < a.layers.End; layer++ {
		w.sums[layer] = gradient.NewAccumulator(w.config.Shape.Parameters(layer))
	}
}

// step runs a step: the passes of all micro-batches, then for each group of layers in the plan's rounds the all-reduce
// and the update. It returns the step's loss in nats a character where the node holds the head, 0 elsewhere. It stops
// within the pass of one layer when ctx ends.
func (w *worker) step(ctx context.Context, step uint64) (loss float64, err error) {
	w.phase.enter(events.PhaseComputing)
	defer w.phase.enter("")
	w.network.Begin(step)
	w.summed = 0
	w.adam = w.config.Adam
	w.adam.LearningRate *= w.part.plan.ScaleAt(step)
	w.loss.Reset()
	w.passed = 0
	for _, sums := range w.sums {
		sums.Reset()
	}
	if err := w.passAll(ctx, step); err != nil {
		return 0, err
	}
	for _, reduction := range w.part.reductions {
		if err := w.reduce(ctx, reduction); err != nil {
			return 0, fmt.Errorf("all-reduce of layers [%d, %d): %w", reduction.First, reduction.End, err)
		}
		if err := w.update(ctx, reduction); err != nil {
			return 0, err
		}
	}
	if w.loss.Additions > 0 {
		loss = w.loss.Mean(0)
	}
	w.summed = step + 1
	return loss, nil
}

func appendFloats(destination []byte, values []float32) []byte {
	for _, value := range values {
		destination = binary.LittleEndian.AppendUint32(destination, math.Float32bits(value))
	}
	return destination
}

func floats(encoded []byte) []float32 {
	values := make([]float32, len(encoded)/4)
	for i := range values {
		values[i] = math.Float32frombits(binary.LittleEndian.Uint32(encoded[4*i:]))
	}
	return values
}
