package model

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/reknit/reknit/services/trainer/gradient"
)

// step trains all layers on a batch of one sample, and returns them one step on beside the changes as bytes.
func step(t *testing.T, adam Adam, layers []*Layer, sample Sample) (next []*Layer, changes [][]byte) {
	t.Helper()
	run := newRunner(layers)
	run.run(t, sample)
	for i, layer := range layers {
		trained, err := adam.Apply(layer, run.sums[i], 1)
		mustSucceed(t, err)
		next = append(next, trained)
		changes = append(changes, MarshalChange(i, trained.Step, adam.LearningRate, run.sums[i]))
	}
	return next, changes
}

func TestALayerToWhichEachChangeIsAppliedIsTheTrainedOneBitByBit(t *testing.T) {
	for seed := range uint64(10) {
		layers, sample := randomModel(t, seed)
		copies := slices.Clone(layers)
		for number := range 40 {
			adam := DefaultAdam()
			adam.LearningRate *= 1 + float64(number%3)/7
			var changes [][]byte
			layers, changes = step(t, adam, layers, sample)
			for i := range copies {
				var err error
				copies[i], err = DefaultAdam().ApplyChange(copies[i], changes[i], 1)
				mustSucceed(t, err)
				if Digest(copies[i]) != Digest(layers[i]) {
					t.Fatalf("seed %d step %d: layer %d is not the trained one", seed, number, i)
				}
			}
		}
	}
}

func TestBytesThatAreNotTheLayersNextChangeAreRefused(t *testing.T) {
	layers, sample := randomModel(t, 4)
	_, changes := step(t, DefaultAdam(), layers, sample)
	layer, good := layers[1], changes[1]
	sums := gradient.NewAccumulator(len(layer.Parameters))
	with := func(layer, step int, learningRate float64, additions, impossible int) []byte {
		sums.Additions, sums.Sums[0] = additions, int64(impossible)
		return MarshalChange(layer, step, learningRate, sums)
	}
	if _, err := DefaultAdam().ApplyChange(layer, with(1, 1, 1e-3, 1, 0), 1); err != nil {
		t.Fatalf("the change before: %v", err)
	}
	for name, c := range map[string]struct {
		change []byte
		named  string
	}{
		"empty":                {nil, "0 bytes"},
		"header only":          {good[:changeHeaderBytes], "additions"},
		"a layer's bytes":      {MarshalLayer(layer), "RKLAYER1"},
		"truncated":            {good[:len(good)-1], "sums["},
		"too long":             {append(slices.Clone(good), 0), "behind its sums"},
		"another layer":        {changes[0], "layer 0"},
		"the step before":      {with(1, 0, 1e-3, 1, 0), "step 0"},
		"a step left out":      {with(1, 2, 1e-3, 1, 0), "step 2"},
		"no learning rate":     {with(1, 1, 0, 1, 0), "learning rate"},
		"no number for a rate": {with(1, 1, math.NaN(), 1, 0), "learning rate"},
		"half a batch":         {with(1, 1, 1e-3, 0, 0), "0 samples"},
		"a doubled batch":      {with(1, 1, 1e-3, 2, 0), "2 samples"},
		"an impossible sum":    {with(1, 1, 1e-3, 1, 1<<62), "sums[0]"},
	} {
		if _, err := DefaultAdam().ApplyChange(layer, c.change, 1); err == nil || !strings.Contains(err.Error(), c.named) {
			t.Errorf("%s: error is %v: expected one that names %q", name, err, c.named)
		}
	}
}

// BenchmarkApplyChange is what a receiver does to a layer of some MiB for each step while it pre-copies.
func BenchmarkApplyChange(b *testing.B) {
	for _, width := range []int{64, 512} {
		shape := Shape{Context: 8, Window: 16, Width: width, Hidden: 2 * width, Blocks: 1, Vocabulary: 93}
		layer, err := NewLayer(shape, 1, 1)
		if err != nil {
			b.Fatal(err)
		}
		sums := gradient.NewAccumulator(shape.Parameters(1))
		if err := sums.Add(layer.Parameters); err != nil {
			b.Fatal(err)
		}
		data, change := MarshalLayer(layer), MarshalChange(1, 1, DefaultAdam().LearningRate, sums)
		name := fmt.Sprintf("%d KiB", len(data)>>10)
		b.Run("change of "+name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				MarshalChange(1, 1, DefaultAdam().LearningRate, sums)
			}
		})
		b.Run("apply to "+name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				before, err := UnmarshalLayer(data)
				if err != nil {
					b.Fatal(err)
				}
				next, err := DefaultAdam().ApplyChange(before, change, 1)
				if err != nil {
					b.Fatal(err)
				}
				MarshalLayer(next)
			}
		})
	}
}
