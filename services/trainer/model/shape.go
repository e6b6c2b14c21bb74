// Package model is a character language model cut into layers that any process can
// hold: position-specific embeddings of the last characters, residual blocks of two
// matrices, and a softmax head (after Bengio et al., "A Neural Probabilistic Language
// Model", JMLR 2003, with the residual blocks and root-mean-square normalisation of
// later models).
//
// Every result is the same bits on every machine: loops have one order, products are
// converted before they are added so that no compiler fuses them, and the exponential
// and the logarithm are the package's own, since math's are assembly that differs
// between processors.
package model

import (
	"fmt"
	"math"
)

// Shape is the size of a model. Layer 0 is the embedding, layers 1 to Blocks are the
// residual blocks, and the last is the softmax head.
type Shape struct {
	// Context is how many characters the model sees before the one it predicts.
	Context int
	// Window is how many characters one sample predicts.
	Window int
	// Width is how many numbers stand for a position between two layers.
	Width int
	// Hidden is how many rectified units each block has.
	Hidden int
	// Blocks is how many residual blocks there are.
	Blocks int
	// Vocabulary is how many distinct characters there are.
	Vocabulary int
	// Partitions is into how many the optimizer state of a layer is cut; 0: it stays whole.
	Partitions int
}

// DefaultShape is a model of a vocabulary that takes about 3 ms of one core per sample,
// forward and backward (measured: see the README).
func DefaultShape(vocabulary int) Shape {
	return Shape{Context: 8, Window: 16, Width: 64, Hidden: 128, Blocks: 10, Vocabulary: vocabulary}
}

// Validate reports the first size that is out of its range. The upper bounds keep a
// layer's state, whose header may come from elsewhere, within what memory can hold.
func (s Shape) Validate() error {
	for _, size := range []struct {
		name                   string
		value, minimum, atMost int
	}{
		{"context", s.Context, 1, 64},
		{"window", s.Window, 1, 1024},
		{"width", s.Width, 1, 1024},
		{"hidden", s.Hidden, 1, 4096},
		{"blocks", s.Blocks, 0, 1024},
		{"vocabulary", s.Vocabulary, 2, 256},
		{"partitions", s.Partitions, 0, mostPartitions},
	} {
		if size.value < size.minimum || size.value > size.atMost {
			return fmt.Errorf("shape %s is %d: expected %d to %d", size.name, size.value, size.minimum, size.atMost)
		}
	}
	return nil
}

// Layers is the number of layers.
func (s Shape) Layers() int { return s.Blocks + 2 }

// Parameters is the number of parameters of a layer.
func (s Shape) Parameters(layer int) int {
	count := 0
	for _, tensor := range s.tensors(layer) {
		count += tensor.elements
	}
	return count
}

// checkUnit reports a unit that the shape does not have.
func (s Shape) checkUnit(unit int) error {
	if unit < 0 || unit >= s.Units() {
		return fmt.Errorf("unit is %d: expected 0 to %d", unit, s.Units()-1)
	}
	return nil
}

func (s Shape) isEmbedding(layer int) bool { return layer == 0 }
func (s Shape) isHead(layer int) bool      { return layer == s.Layers()-1 }

// tensor is one run of a layer's parameters, drawn uniformly from (-bound, bound).
type tensor struct {
	elements int
	bound    float64
}

// tensors lists a layer's parameters in the order in which they are stored. Matrices
// are stored by input: the weights from input i are row i.
func (s Shape) tensors(layer int) []tensor {
	switch {
	case s.isEmbedding(layer):
		return []tensor{{s.Context * s.Vocabulary * s.Width, uniform(1 / float64(s.Context))}}
	case s.isHead(layer):
		return []tensor{{s.Width * s.Vocabulary, uniform(0.1 / float64(s.Width))}, {s.Vocabulary, 0}}
	default:
		return []tensor{
			{s.Width * s.Hidden, uniform(2 / float64(s.Width))}, // He et al. 2015, equation 10
			{s.Hidden, 0},
			// Divided by the blocks too, so that the sum of all blocks keeps its scale (GPT-2, section 2.3).
			{s.Hidden * s.Width, uniform(1 / float64(s.Hidden*s.Blocks))},
			{s.Width, 0},
		}
	}
}

// uniform returns the bound of the uniform distribution around zero with a variance.
func uniform(variance float64) float64 { return math.Sqrt(3 * variance) }
