package model

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/reknit/reknit/services/trainer/gradient"
)

func TestAdamFollowsItsPaper(t *testing.T) {
	shape := Shape{Context: 1, Window: 1, Width: 2, Hidden: 1, Blocks: 0, Vocabulary: 2}
	layer, err := NewLayer(shape, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	adam := Adam{LearningRate: 0.01, FirstDecay: 0.9, SecondDecay: 0.99, Epsilon: 1e-8}
	random := rand.New(rand.NewPCG(1, 5))
	// The twin: algorithm 1 of the paper on one parameter at a time.
	var parameters, m, v [4]float64
	for i, parameter := range layer.Parameters {
		parameters[i] = float64(parameter)
	}
	for step := 1; step <= 30; step++ {
		sums := gradient.NewAccumulator(4)
		batch := [][]float32{randomMatrix(random, 4), randomMatrix(random, 4), randomMatrix(random, 4)}
		for _, g := range batch {
			mustSucceed(t, sums.Add(g))
		}
		if layer, err = adam.Apply(layer, sums, 3); err != nil {
			t.Fatal(err)
		}
		for i := range parameters {
			g := (float64(batch[0][i]) + float64(batch[1][i]) + float64(batch[2][i])) / 3
			m[i] = 0.9*m[i] + 0.1*g
			v[i] = 0.99*v[i] + 0.01*g*g
			mean, variance := m[i]/(1-math.Pow(0.9, float64(step))), v[i]/(1-math.Pow(0.99, float64(step)))
			parameters[i] -= 0.01 * mean / (math.Sqrt(variance) + 1e-8)
			if got := float64(layer.Parameters[i]); math.Abs(got-parameters[i]) > 1e-5 {
				t.Fatalf("step %d: parameter %d is %v: expected %v", step, i, got, parameters[i])
			}
		}
		if layer.Step != step {
			t.Fatalf("layer is at step %d: expected %d", layer.Step, step)
		}
	}
}

func TestAnUpdateLeavesTheOldLayerAsItWas(t *testing.T) {
	layers, sample := randomModel(t, 4)
	run := newRunner(layers)
	run.run(t, sample)
	for i, layer := range layers {
		before := MarshalLayer(layer)
		next, err := DefaultAdam().Apply(layer, run.sums[i], 1)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(MarshalLayer(layer), before) {
			t.Errorf("layer %d changed in its update", i)
		}
		if slices.Equal(next.Parameters, layer.Parameters) {
			t.Errorf("layer %d: the update changed no parameter", i)
		}
	}
}

func TestABatchWithALostOrADoubledSampleIsRefused(t *testing.T) {
	layers, sample := randomModel(t, 4)
	for runs := range 5 {
		run := newRunner(layers)
		for range runs {
			run.run(t, sample)
		}
		if _, err := DefaultAdam().Apply(layers[0], run.sums[0], 3); (err == nil) != (runs == 3) {
			t.Errorf("%d samples in a batch of 3: error is %v", runs, err)
		}
	}
	if _, err := DefaultAdam().Apply(layers[0], gradient.NewAccumulator(len(layers[0].Parameters)), 0); err == nil {
		t.Error("an empty batch was accepted")
	}
	if _, err := DefaultAdam().Apply(layers[0], gradient.NewAccumulator(1), 1); err == nil {
		t.Error("sums of another length were accepted")
	}
}

func TestAdamsNumbersHaveRanges(t *testing.T) {
	if err := DefaultAdam().Validate(); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*Adam){
		"zero rate":           func(a *Adam) { a.LearningRate = 0 },
		"rate not a number":   func(a *Adam) { a.LearningRate = math.NaN() },
		"infinite rate":       func(a *Adam) { a.LearningRate = math.Inf(1) },
		"first decay of one":  func(a *Adam) { a.FirstDecay = 1 },
		"second decay below":  func(a *Adam) { a.SecondDecay = -0.1 },
		"second decay no one": func(a *Adam) { a.SecondDecay = math.NaN() },
		"no epsilon":          func(a *Adam) { a.Epsilon = 0 },
	} {
		adam := DefaultAdam()
		spoil(&adam)
		if err := adam.Validate(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func mustSucceed(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
