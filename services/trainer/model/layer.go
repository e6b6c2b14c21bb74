package model

import (
	"fmt"
	"math/rand/v2"
)

// Layer is the state of one layer after a number of steps, or a unit of it. It is not changed
// once made: a step makes a new one, and the old one serves a roll-back.
type Layer struct {
	Shape Shape
	// Index says which unit of the shape it is: the layer, where the optimizer state is whole.
	Index int
	// Step is how many updates it has had.
	Step int
	// Parameters are the weights; FirstMoment and SecondMoment are Adam's running
	// means of each one's gradient and squared gradient. A unit has one or the other.
	Parameters, FirstMoment, SecondMoment []float32
}

// NewLayer returns a unit at step 0. It depends on the shape, the index and the seed
// alone, so any process may make any unit.
func NewLayer(shape Shape, index int, seed uint64) (*Layer, error) {
	if err := shape.Validate(); err != nil {
		return nil, err
	}
	if err := shape.checkUnit(index); err != nil {
		return nil, err
	}
	layer := allocate(shape, index, 0)
	if len(layer.Parameters) == 0 {
		return layer, nil
	}
	random := rand.NewPCG(seed, uint64(index))
	rest := layer.Parameters
	for _, tensor := range shape.tensors(index) {
		for i := range rest[:tensor.elements] {
			// The top 24 bits as a number in [-1, 1): exact in a float32.
			draw := float64(int64(random.Uint64()>>40)-1<<23) / (1 << 23)
			rest[i] = float32(draw * tensor.bound)
		}
		rest = rest[tensor.elements:]
	}
	return layer, nil
}

// allocate returns a unit of zeros.
func allocate(shape Shape, index, step int) *Layer {
	n := shape.parameters(index)
	first, end := shape.moments(index)
	m := end - first
	state := make([]float32, n+2*m)
	return &Layer{
		Shape: shape, Index: index, Step: step,
		Parameters: state[:n:n], FirstMoment: state[n : n+m : n+m], SecondMoment: state[n+m:],
	}
}

// Sample is one micro-batch: the characters the embedding reads and the characters
// the head is to predict, as indices into the vocabulary.
type Sample struct {
	Characters []byte // Context+Window-1 of them; position p sees [p, p+Context)
	Targets    []byte // Window of them
}

// check reports a sample that does not fit the shape.
func (s Sample) check(shape Shape) error {
	if want := shape.Context + shape.Window - 1; len(s.Characters) != want {
		return fmt.Errorf("sample has %d characters: expected %d", len(s.Characters), want)
	}
	if len(s.Targets) != shape.Window {
		return fmt.Errorf("sample has %d targets: expected %d", len(s.Targets), shape.Window)
	}
	for _, part := range [][]byte{s.Characters, s.Targets} {
		for _, character := range part {
			if int(character) >= shape.Vocabulary {
				return fmt.Errorf("sample holds character %d: expected below the vocabulary, %d",
					character, shape.Vocabulary)
			}
		}
	}
	return nil
}
