package model

import (
	"math"
	"slices"
	"testing"
)

func TestALayerFollowsFromItsShapeSeedAndIndexAlone(t *testing.T) {
	shape := DefaultShape(93)
	starts := map[string]bool{}
	for _, seed := range []uint64{0, 1, 1 << 63} {
		for index := shape.Layers() - 1; index >= 0; index-- {
			layer, err := NewLayer(shape, index, seed)
			if err != nil {
				t.Fatal(err)
			}
			again, err := NewLayer(shape, index, seed)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(layer.Parameters, again.Parameters) {
				t.Fatalf("layer %d of seed %d was made in two ways", index, seed)
			}
			start := string(MarshalLayer(layer)[headerBytes : headerBytes+64])
			if starts[start] {
				t.Fatalf("layer %d of seed %d begins like another", index, seed)
			}
			starts[start] = true
		}
	}
}

func TestInitialParametersHaveTheSpreadTheyWereGiven(t *testing.T) {
	shape := DefaultShape(93)
	for index := range shape.Layers() {
		layer, err := NewLayer(shape, index, 7)
		if err != nil {
			t.Fatal(err)
		}
		rest := layer.Parameters
		for _, tensor := range shape.tensors(index) {
			sum, squares := 0.0, 0.0
			for _, value := range rest[:tensor.elements] {
				sum += float64(value)
				squares += float64(value) * float64(value)
			}
			rest = rest[tensor.elements:]
			n := float64(tensor.elements)
			deviation := tensor.bound / math.Sqrt(3)
			if mean := sum / n; math.Abs(mean) > 5*deviation/math.Sqrt(n) {
				t.Errorf("layer %d: mean is %v: expected about 0", index, mean)
			}
			if got := math.Sqrt(squares / n); math.Abs(got-deviation) > 0.05*deviation {
				t.Errorf("layer %d: standard deviation is %v: expected %v", index, got, deviation)
			}
		}
	}
}

func TestAShapeOutOfRangeIsRefused(t *testing.T) {
	if err := DefaultShape(93).Validate(); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*Shape){
		"context":    func(s *Shape) { s.Context = 0 },
		"window":     func(s *Shape) { s.Window = 1025 },
		"width":      func(s *Shape) { s.Width = -1 },
		"hidden":     func(s *Shape) { s.Hidden = math.MaxInt },
		"blocks":     func(s *Shape) { s.Blocks = -1 },
		"vocabulary": func(s *Shape) { s.Vocabulary = 1 },
	} {
		shape := DefaultShape(93)
		spoil(&shape)
		if _, err := NewLayer(shape, 0, 0); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	for _, index := range []int{-1, 12} {
		if _, err := NewLayer(DefaultShape(93), index, 0); err == nil {
			t.Errorf("layer %d of 12: accepted", index)
		}
	}
}

func TestTheCostsAreWhatALayerTakes(t *testing.T) {
	for seed := range uint64(30) {
		layers, sample := randomModel(t, seed)
		run, slow := newRunner(layers), newTwin(layers)
		run.run(t, sample)
		for i, layer := range layers {
			costs, a := layer.Shape.Costs(i), run.activations[i]
			activations := 4 * (len(a.output) + len(a.inputGradient) + len(a.normalised) + len(a.inverseScale) + len(a.hidden) + len(a.errors))
			want := Costs{
				ParameterBytes:  int64(4 * len(layer.Parameters)),
				OptimizerBytes:  int64(4 * (len(layer.FirstMoment) + len(layer.SecondMoment))),
				GradientBytes:   int64(8 * len(run.sums[i].Sums)),
				ActivationBytes: int64(activations),
				OutputBytes:     int64(4 * len(a.output)),
			}
			want.ForwardOperations = slow.forwardOperations(i, sample)
			want.BackwardOperations = want.ForwardOperations
			if i > 0 { // a product in the forward pass has two gradients
				want.BackwardOperations *= 2
			}
			if costs != want {
				t.Errorf("seed %d: layer %d costs %+v: expected %+v", seed, i, costs, want)
			}
		}
	}
}

// forwardOperations counts what the twin does in one layer of a sample.
func (t *twin) forwardOperations(layer int, sample Sample) int64 {
	t.operations = 0
	for position := range sample.Targets {
		x := make([]float64, t.shape.Width)
		switch layer {
		case 0:
			t.embed(sample.Characters[position : position+t.shape.Context])
		case t.shape.Blocks + 1:
			t.probabilities(x)
		default:
			t.block(layer, x)
		}
	}
	return t.operations
}
