package model

import (
	"fmt"

	"github.com/reknit/reknit/services/trainer/gradient"
)

// Activations are what one layer keeps of one micro-batch between its forward and its
// backward pass. A pipeline stage has one per layer and micro-batch in flight.
type Activations struct {
	// Loss is the head's mean cross-entropy over the window, in nats.
	Loss float32

	sample        Sample
	output        []float32 // Window x Width; not the head's
	inputGradient []float32 // Window x Width; not the embedding's
	normalised    []float32 // Window x Width: the input with unit root mean square
	inverseScale  []float32 // Window: 1 / the root mean square that was divided by
	hidden        []float32 // Window x Hidden: rectified; a block's only
	errors        []float32 // Window x Vocabulary: the gradient of the logits; the head's only
}

// NewActivations returns room for one micro-batch in one layer.
func NewActivations(shape Shape, layer int) *Activations {
	a := &Activations{}
	between := shape.Window * shape.Width
	if !shape.isHead(layer) {
		a.output = make([]float32, between)
	}
	if shape.isEmbedding(layer) {
		return a
	}
	a.inputGradient = make([]float32, between)
	a.normalised = make([]float32, between)
	a.inverseScale = make([]float32, shape.Window)
	if shape.isHead(layer) {
		a.errors = make([]float32, shape.Window*shape.Vocabulary)
	} else {
		a.hidden = make([]float32, shape.Window*shape.Hidden)
	}
	return a
}

// Scratch is the room a backward pass works in: one per worker, for all its layers.
type Scratch struct {
	parameterGradient []float32
	hiddenGradient    []float32
}

// NewScratch returns room for any layer of the shape.
func NewScratch(shape Shape) *Scratch {
	// All blocks are alike, so the first two layers and the head cover every size.
	largest := shape.Parameters(shape.Layers() - 1)
	for layer := range min(2, shape.Layers()) {
		largest = max(largest, shape.Parameters(layer))
	}
	return &Scratch{
		parameterGradient: make([]float32, largest),
		hiddenGradient:    make([]float32, shape.Window*shape.Hidden),
	}
}

// Forward runs the layer on one micro-batch and returns its output, Window x Width
// numbers that stay valid until the activations are used again. The embedding reads
// the sample and no input; the head returns nil and sets activations.Loss. An input of
// the wrong length and a sample that does not fit are errors.
func (l *Layer) Forward(sample Sample, input []float32, activations *Activations) ([]float32, error) {
	if err := sample.check(l.Shape); err != nil {
		return nil, err
	}
	activations.sample = sample
	if l.Shape.isEmbedding(l.Index) {
		l.embed(activations)
		return activations.output, nil
	}
	if err := l.checkBetween("input", input); err != nil {
		return nil, err
	}
	normalise(activations.normalised, activations.inverseScale, input, l.Shape.Width)
	if l.Shape.isHead(l.Index) {
		l.predict(activations)
		return nil, nil
	}
	l.transform(input, activations)
	return activations.output, nil
}

// Backward takes the gradient of the loss by the layer's output (nil for the head) and
// adds the micro-batch's parameter gradient to the sums, whose errors it returns. It
// returns the gradient by the layer's input, Window x Width numbers that stay valid
// until the activations are used again; nil for the embedding. The activations must be
// those of a Forward of the same layer state.
func (l *Layer) Backward(
	activations *Activations, outputGradient []float32, scratch *Scratch, sums *gradient.Accumulator,
) ([]float32, error) {
	parameterGradient := scratch.parameterGradient[:len(l.Parameters)]
	clear(parameterGradient)
	if l.Shape.isHead(l.Index) {
		l.predictBackward(activations, parameterGradient)
	} else if err := l.checkBetween("output gradient", outputGradient); err != nil {
		return nil, err
	} else if l.Shape.isEmbedding(l.Index) {
		l.embedBackward(activations, outputGradient, parameterGradient)
	} else {
		l.transformBackward(activations, outputGradient, parameterGradient, scratch.hiddenGradient)
	}
	if err := sums.Add(parameterGradient); err != nil {
		return nil, fmt.Errorf("layer %d step %d: %w", l.Index, l.Step, err)
	}
	return activations.inputGradient, nil
}

// checkBetween reports numbers that are not what passes between two layers.
func (l *Layer) checkBetween(name string, values []float32) error {
	if want := l.Shape.Window * l.Shape.Width; len(values) != want {
		return fmt.Errorf("layer %d: %s has %d numbers: expected %d (window %d x width %d)",
			l.Index, name, len(values), want, l.Shape.Window, l.Shape.Width)
	}
	return nil
}
