package model

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/reknit/reknit/services/trainer/gradient"
)

// randomModel returns a small model whose parameters, biases too, are all random, and
// a sample for it.
func randomModel(t testing.TB, seed uint64) ([]*Layer, Sample) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 1))
	shape := Shape{
		Context: 1 + random.IntN(3), Window: 1 + random.IntN(5), Width: 2 + random.IntN(6),
		Hidden: 1 + random.IntN(7), Blocks: random.IntN(4), Vocabulary: 2 + random.IntN(7),
	}
	layers := make([]*Layer, shape.Layers())
	for i := range layers {
		layer, err := NewLayer(shape, i, seed)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for j := range layer.Parameters {
			layer.Parameters[j] += float32(random.Float64() - 0.5)
		}
		layers[i] = layer
	}
	return layers, randomSample(random, shape)
}

func randomSample(random *rand.Rand, shape Shape) Sample {
	sample := Sample{Characters: make([]byte, shape.Context+shape.Window-1), Targets: make([]byte, shape.Window)}
	for _, part := range [][]byte{sample.Characters, sample.Targets} {
		for i := range part {
			part[i] = byte(random.IntN(shape.Vocabulary))
		}
	}
	return sample
}

// runner holds what a pass through a whole model needs.
type runner struct {
	layers      []*Layer
	activations []*Activations
	scratch     *Scratch
	sums        []*gradient.Accumulator
}

func newRunner(layers []*Layer) *runner {
	r := &runner{layers: layers, scratch: NewScratch(layers[0].Shape)}
	for i, layer := range layers {
		r.activations = append(r.activations, NewActivations(layer.Shape, i))
		r.sums = append(r.sums, gradient.NewAccumulator(len(layer.Parameters)))
	}
	return r
}

func (r *runner) run(t testing.TB, sample Sample) (loss float32) {
	t.Helper()
	var between []float32
	var err error
	for i, layer := range r.layers {
		if between, err = layer.Forward(sample, between, r.activations[i]); err != nil {
			t.Fatal(err)
		}
	}
	for i := len(r.layers) - 1; i >= 0; i-- {
		if between, err = r.layers[i].Backward(r.activations[i], between, r.scratch, r.sums[i]); err != nil {
			t.Fatal(err)
		}
	}
	return r.activations[len(r.layers)-1].Loss
}

func TestTheLossIsTheTwins(t *testing.T) {
	for seed := range uint64(100) {
		layers, sample := randomModel(t, seed)
		got, want := float64(newRunner(layers).run(t, sample)), newTwin(layers).loss(sample)
		if math.Abs(got-want) > 1e-5*(1+want) {
			t.Errorf("seed %d: loss is %v: expected %v", seed, got, want)
		}
	}
}

func TestTheGradientIsTheTwinsFiniteDifference(t *testing.T) {
	const change = 1e-5
	for seed := range uint64(60) {
		layers, sample := randomModel(t, seed)
		run := newRunner(layers)
		run.run(t, sample)
		slow := newTwin(layers)
		for layer, parameters := range slow.parameters {
			for i, parameter := range parameters {
				parameters[i] = parameter + change
				above := slow.loss(sample)
				parameters[i] = parameter - change
				below := slow.loss(sample)
				parameters[i] = parameter
				got, want := run.sums[layer].Mean(i), (above-below)/(2*change)
				if math.Abs(got-want) > 2e-4*(0.1+math.Abs(want)) {
					t.Errorf("seed %d: gradient %d of layer %d is %v: expected %v", seed, i, layer, got, want)
				}
			}
		}
	}
}

func TestAPassLeavesNothingBehindInItsRoom(t *testing.T) {
	layers, sample := randomModel(t, 5)
	other := randomSample(rand.New(rand.NewPCG(6, 0)), layers[0].Shape)
	used, fresh := newRunner(layers), newRunner(layers)
	used.run(t, other)
	for _, sums := range used.sums {
		sums.Reset()
	}
	if got, want := used.run(t, sample), fresh.run(t, sample); got != want {
		t.Errorf("loss in used room is %v: expected %v", got, want)
	}
	for layer := range layers {
		for i, sum := range used.sums[layer].Sums {
			if want := fresh.sums[layer].Sums[i]; sum != want {
				t.Fatalf("layer %d: sum %d in used room is %d: expected %d", layer, i, sum, want)
			}
		}
	}
}

func TestAPassAllocatesNothing(t *testing.T) {
	layers, sample := randomModel(t, 3)
	run := newRunner(layers)
	if count := testing.AllocsPerRun(20, func() { run.run(t, sample) }); count != 0 {
		t.Errorf("a pass allocates %v times: expected 0", count)
	}
}

func TestWhatDoesNotFitTheLayerIsRefused(t *testing.T) {
	shape := Shape{Context: 2, Window: 3, Width: 4, Hidden: 5, Blocks: 1, Vocabulary: 6}
	good := Sample{Characters: []byte{0, 1, 2, 3}, Targets: []byte{2, 3, 5}}
	input := make([]float32, 12)
	for name, attempt := range map[string]struct {
		layer  int
		sample Sample
		input  []float32
	}{
		"few characters":          {0, Sample{good.Characters[:3], good.Targets}, nil},
		"few targets":             {2, Sample{good.Characters, good.Targets[:2]}, input},
		"character out of range":  {0, Sample{[]byte{0, 1, 6, 3}, good.Targets}, nil},
		"target out of range":     {2, Sample{good.Characters, []byte{0, 1, 6}}, input},
		"short input":             {1, good, input[:11]},
		"no input":                {1, good, nil},
		"long input for the head": {2, good, make([]float32, 13)},
	} {
		layer, err := NewLayer(shape, attempt.layer, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := layer.Forward(attempt.sample, attempt.input, NewActivations(shape, attempt.layer)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	layer, err := NewLayer(shape, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	sums := gradient.NewAccumulator(len(layer.Parameters))
	if _, err := layer.Backward(NewActivations(shape, 1), input[:11], NewScratch(shape), sums); err == nil {
		t.Error("short output gradient: accepted")
	}
}

func TestANumberThatIsNotFiniteStopsTheBackwardPass(t *testing.T) {
	layers, sample := randomModel(t, 2)
	layers[0].Parameters[int(sample.Characters[0])*layers[0].Shape.Width] = float32(math.NaN())
	run := newRunner(layers)
	var between []float32
	var err error
	for i, layer := range layers {
		if between, err = layer.Forward(sample, between, run.activations[i]); err != nil {
			t.Fatal(err)
		}
	}
	head := len(layers) - 1
	if _, err := layers[head].Backward(run.activations[head], nil, run.scratch, run.sums[head]); err == nil {
		t.Error("a gradient that is not a number was added")
	}
}
