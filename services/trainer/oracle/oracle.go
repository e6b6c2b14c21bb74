// Package oracle trains the whole model in one sequential loop: what any distributed
// run of the same training must come to, digest for digest, whatever befell it.
//
// Its pieces (Worker, Sums, Update) let a caller spread a step's samples over as many
// goroutines as it likes: the sums do not depend on who added what.
package oracle

import (
	"fmt"

	"github.com/reknit/reknit/services/trainer/model"
	"github.com/reknit/reknit/services/trainer/text"
)

// Training is everything the result depends on, besides the text.
type Training struct {
	Shape model.Shape
	Adam  model.Adam
	// Seed decides the initial parameters.
	Seed uint64
	// GlobalBatch is the samples per step: step k takes [k*GlobalBatch, (k+1)*GlobalBatch).
	GlobalBatch int
	// Steps is the number of updates.
	Steps int
}

// Run trains from step 0, sequentially, and returns the model's digest and each step's loss in nats per character,
// taken before that step's update. Report, where it is not nil, hears each loss as it is known. Sizes that do not fit
// each other or the text are errors.
//
// Partitions of the optimizer state change the digest, which then is of all units, and nothing else: layers are trained
// whole.
func Run(
	training Training, samples *text.Text, report func(step int, loss float64),
) (digest string, losses []float64, err error) {
	partitions := training.Shape.Partitions
	training.Shape.Partitions = 0
	layers, err := NewLayers(training.Shape, training.Seed)
	if err != nil {
		return "", nil, err
	}
	if training.GlobalBatch < 1 || training.Steps < 0 {
		return "", nil, fmt.Errorf("global batch is %d and steps are %d: expected at least 1 and 0",
			training.GlobalBatch, training.Steps)
	}
	worker := NewWorker(training.Shape)
	for step := range training.Steps {
		worker.Sums.Reset()
		first := step * training.GlobalBatch
		if err := worker.AccumulateRange(layers, samples, first, first+training.GlobalBatch); err != nil {
			return "", nil, fmt.Errorf("step %d: %w", step, err)
		}
		if layers, err = Update(layers, worker.Sums, training.Adam, training.GlobalBatch); err != nil {
			return "", nil, fmt.Errorf("step %d: %w", step, err)
		}
		losses = append(losses, worker.Sums.Loss.Mean(0))
		if report != nil {
			report(step, losses[step])
		}
	}
	return Digest(layers, partitions), losses, nil
}

// NewLayers returns all layers of a model at step 0.
func NewLayers(shape model.Shape, seed uint64) ([]*model.Layer, error) {
	if err := shape.Validate(); err != nil {
		return nil, err
	}
	layers := make([]*model.Layer, shape.Layers())
	for i := range layers {
		layer, err := model.NewLayer(shape, i, seed)
		if err != nil {
			return nil, err
		}
		layers[i] = layer
	}
	return layers, nil
}

// Update returns the layers one step on, and leaves the ones it was given as they were.
func Update(layers []*model.Layer, sums *Sums, adam model.Adam, globalBatch int) ([]*model.Layer, error) {
	next := make([]*model.Layer, len(layers))
	for i, layer := range layers {
		updated, err := adam.Apply(layer, sums.Layers[i], globalBatch)
		if err != nil {
			return nil, err
		}
		next[i] = updated
	}
	return next, nil
}

// Digest returns the digest of a whole model, whose optimizer state is cut into so many partitions.
func Digest(layers []*model.Layer, partitions int) string {
	digests := make([]string, len(layers)*(1+partitions))
	for _, layer := range layers {
		for _, unit := range layer.Cut(partitions) {
			digests[unit.Index] = model.Digest(unit)
		}
	}
	return model.ModelDigest(digests)
}
