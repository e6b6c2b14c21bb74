package model

import (
	"fmt"
	"math"

	"github.com/reknit/reknit/services/trainer/gradient"
)

// Adam is the update rule (Kingma and Ba 2015, algorithm 1).
type Adam struct {
	// LearningRate is the step size; a plan's learning rate scale multiplies it.
	LearningRate float64
	// FirstDecay and SecondDecay are the decay rates of the two moments, in [0, 1).
	FirstDecay, SecondDecay float64
	// Epsilon keeps the division finite.
	Epsilon float64
}

// DefaultAdam is the rule that suits DefaultShape (see the README for the losses).
func DefaultAdam() Adam {
	return Adam{LearningRate: 4e-3, FirstDecay: 0.9, SecondDecay: 0.99, Epsilon: 1e-8}
}

// Validate reports the first field out of its range.
func (a Adam) Validate() error {
	if !(a.LearningRate > 0) || math.IsInf(a.LearningRate, 0) {
		return fmt.Errorf("adam learning rate is %v: expected a positive number", a.LearningRate)
	}
	if !(a.FirstDecay >= 0 && a.FirstDecay < 1) || !(a.SecondDecay >= 0 && a.SecondDecay < 1) {
		return fmt.Errorf("adam decays are %v and %v: expected at least 0 and below 1", a.FirstDecay, a.SecondDecay)
	}
	if !(a.Epsilon > 0) || math.IsInf(a.Epsilon, 0) {
		return fmt.Errorf("adam epsilon is %v: expected a positive number", a.Epsilon)
	}
	return nil
}

// Apply returns the layer one step on, from the gradient sums of a global batch of
// samples; the layer itself stays as it was. Sums that hold another number of samples
// than the batch, as after a lost or doubled micro-batch, are an error.
func (a Adam) Apply(layer *Layer, sums *gradient.Accumulator, globalBatch int) (*Layer, error) {
	if err := a.check(layer, sums, globalBatch); err != nil {
		return nil, err
	}
	next := allocate(layer.Shape, layer.Index, layer.Step+1)
	a.step(layer, next, layer.Parameters, next.Parameters, sums)
	return next, nil
}

// ApplyPart is Apply for a partition of a layer's optimizer state: the sums are those of its parameters, which it
// takes from parameters as they are at the same step and writes to updated as they are one step on.
func (a Adam) ApplyPart(
	part *Layer, parameters, updated []float32, sums *gradient.Accumulator, globalBatch int,
) (*Layer, error) {
	if err := a.check(part, sums, globalBatch); err != nil {
		return nil, err
	}
	if n := len(part.FirstMoment); len(parameters) != n || len(updated) != n {
		return nil, fmt.Errorf("layer %d: %d parameters and room for %d: expected those of its %d moments",
			part.Index, len(parameters), len(updated), n)
	}
	next := allocate(part.Shape, part.Index, part.Step+1)
	a.step(part, next, parameters, updated, sums)
	return next, nil
}

func (a Adam) check(layer *Layer, sums *gradient.Accumulator, globalBatch int) error {
	if err := a.Validate(); err != nil {
		return err
	}
	if len(sums.Sums) != len(layer.FirstMoment) {
		return fmt.Errorf("layer %d: gradient has %d elements: expected %d",
			layer.Index, len(sums.Sums), len(layer.FirstMoment))
	}
	if globalBatch < 1 || sums.Additions != globalBatch {
		return fmt.Errorf("layer %d step %d: gradient holds %d samples: expected the global batch, %d",
			layer.Index, layer.Step, sums.Additions, globalBatch)
	}
	return nil
}

// step writes the next moments and the parameters that go with them.
func (a Adam) step(layer, next *Layer, parameters, updated []float32, sums *gradient.Accumulator) {
	first := 1 - power(a.FirstDecay, next.Step)
	rate, second := a.LearningRate/first, 1/(1-power(a.SecondDecay, next.Step))
	for i, parameter := range parameters {
		g := sums.Mean(i)
		m := float64(a.FirstDecay*float64(layer.FirstMoment[i])) + float64((1-a.FirstDecay)*g)
		v := float64(a.SecondDecay*float64(layer.SecondMoment[i])) + float64((1-a.SecondDecay)*float64(g*g))
		change := float64(rate*m) / (math.Sqrt(float64(v*second)) + a.Epsilon)
		updated[i] = float32(float64(parameter) - change)
		next.FirstMoment[i], next.SecondMoment[i] = float32(m), float32(v)
	}
}

// power returns base^exponent by repeated squaring, the same bits on every processor.
func power(base float64, exponent int) float64 {
	result := 1.0
	for ; exponent > 0; exponent >>= 1 {
		if exponent&1 == 1 {
			result = float64(result * base)
		}
		base = float64(base * base)
	}
	return result
}
