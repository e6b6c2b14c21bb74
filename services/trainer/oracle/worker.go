package oracle

import (
	"fmt"

	"github.com/reknit/reknit/services/trainer/gradient"
	"github.com/reknit/reknit/services/trainer/model"
	"github.com/reknit/reknit/services/trainer/text"
)

// Sums are one step's gradient sums, layer by layer, and its loss sum of one element.
type Sums struct {
	Layers []*gradient.Accumulator
	Loss   *gradient.Accumulator
}

// NewSums returns the zero sums of a model.
func NewSums(shape model.Shape) *Sums {
	sums := &Sums{Loss: gradient.NewAccumulator(1)}
	for layer := range shape.Layers() {
		sums.Layers = append(sums.Layers, gradient.NewAccumulator(shape.Parameters(layer)))
	}
	return sums
}

// Reset makes them zero again.
func (s *Sums) Reset() {
	for _, layer := range s.Layers {
		layer.Reset()
	}
	s.Loss.Reset()
}

// Merge adds another worker's sums. After an error the sums are of no use.
func (s *Sums) Merge(other *Sums) error {
	for i, layer := range s.Layers {
		if err := layer.Merge(other.Layers[i]); err != nil {
			return fmt.Errorf("layer %d: %w", i, err)
		}
	}
	return s.Loss.Merge(other.Loss)
}

// Worker adds up gradients of one sample after another. It serves one goroutine.
type Worker struct {
	Sums *Sums

	activations []*model.Activations
	scratch     *model.Scratch
}

// NewWorker returns a worker with zero sums.
func NewWorker(shape model.Shape) *Worker {
	worker := &Worker{Sums: NewSums(shape), scratch: model.NewScratch(shape)}
	for layer := range shape.Layers() {
		worker.activations = append(worker.activations, model.NewActivations(shape, layer))
	}
	return worker
}

// AccumulateRange adds samples [first, end) of the text's endless run.
func (w *Worker) AccumulateRange(layers []*model.Layer, samples *text.Text, first, end int) error {
	for index := first; index < end; index++ {
		characters, targets, err := samples.Sample(index)
		if err == nil {
			err = w.Accumulate(layers, model.Sample{Characters: characters, Targets: targets})
		}
		if err != nil {
			return fmt.Errorf("sample %d: %w", index, err)
		}
	}
	return nil
}

// Accumulate runs one sample forward and backward through all layers, and adds its
// gradients and its loss to the sums. After an error the sums are of no use.
func (w *Worker) Accumulate(layers []*model.Layer, sample model.Sample) error {
	var between []float32
	var err error
	for i, layer := range layers {
		if between, err = layer.Forward(sample, between, w.activations[i]); err != nil {
			return err
		}
	}
	head := len(layers) - 1
	if err := w.Sums.Loss.Add([]float32{w.activations[head].Loss}); err != nil {
		return fmt.Errorf("loss: %w", err)
	}
	for i := head; i >= 0; i-- {
		if between, err = layers[i].Backward(w.activations[i], between, w.scratch, w.Sums.Layers[i]); err != nil {
			return err
		}
	}
	return nil
}
