package model

import "math"

// twin is the slow, obvious model: float64, one position at a time, no backward pass.
type twin struct {
	shape      Shape
	parameters [][]float64 // by layer
	operations int64       // multiplications and additions of the current layer's products
}

func newTwin(layers []*Layer) *twin {
	t := &twin{shape: layers[0].Shape}
	for _, layer := range layers {
		parameters := make([]float64, len(layer.Parameters))
		for i, parameter := range layer.Parameters {
			parameters[i] = float64(parameter)
		}
		t.parameters = append(t.parameters, parameters)
	}
	return t
}

// loss is the mean over the window of -ln(probability of the target).
func (t *twin) loss(sample Sample) float64 {
	sum := 0.0
	for position, target := range sample.Targets {
		x := t.embed(sample.Characters[position : position+t.shape.Context])
		for layer := 1; layer <= t.shape.Blocks; layer++ {
			x = t.block(layer, x)
		}
		sum -= math.Log(t.probabilities(x)[target])
	}
	return sum / float64(len(sample.Targets))
}

func (t *twin) embed(characters []byte) []float64 {
	x := make([]float64, t.shape.Width)
	for place, character := range characters {
		for i := range x {
			x[i] += t.parameters[0][(place*t.shape.Vocabulary+int(character))*t.shape.Width+i]
			t.operations++
		}
	}
	return x
}

func (t *twin) block(layer int, x []float64) []float64 {
	s, p := t.shape, t.parameters[layer]
	firstEnd := s.Width * s.Hidden
	secondStart := firstEnd + s.Hidden
	secondEnd := secondStart + s.Hidden*s.Width
	hidden := t.dense(unitRootMeanSquare(x), p[:firstEnd], p[firstEnd:secondStart])
	for i, h := range hidden {
		hidden[i] = math.Max(h, 0)
	}
	output := t.dense(hidden, p[secondStart:secondEnd], p[secondEnd:])
	for i := range output {
		output[i] += x[i]
	}
	return output
}

func (t *twin) probabilities(x []float64) []float64 {
	p := t.parameters[len(t.parameters)-1]
	weights := t.shape.Width * t.shape.Vocabulary
	output := t.dense(unitRootMeanSquare(x), p[:weights], p[weights:])
	sum := 0.0
	for i, logit := range output {
		output[i] = math.Exp(logit)
		sum += output[i]
	}
	for i := range output {
		output[i] /= sum
	}
	return output
}

func (t *twin) dense(x, weights, bias []float64) []float64 {
	output := make([]float64, len(bias))
	for o := range output {
		output[o] = bias[o]
		for i := range x {
			output[o] += x[i] * weights[i*len(output)+o]
			t.operations += 2
		}
	}
	return output
}

func unitRootMeanSquare(x []float64) []float64 {
	squares := 0.0
	for _, value := range x {
		squares += value * value
	}
	output := make([]float64, len(x))
	for i, value := range x {
		output[i] = value / math.Sqrt(squares/float64(len(x))+normaliseEpsilon)
	}
	return output
}
