package model

import (
	"encoding/binary"
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
		changes = append(changes, MarshalChange(Change{layer.Index, trained.Step, adam.LearningRate, run.sums[i]}))
	}
	return next, changes
}

func TestAFollowedLayerIsTheTrainedOneBitByBit(t *testing.T) {
	for seed := range uint64(10) {
		layers, sample := randomModel(t, seed)
		copies := slices.Clone(layers)
		for number := range 40 {
			adam := DefaultAdam()
			adam.LearningRate *= 1 + float64(number%3)/7
			var changes [][]byte
			layers, changes = step(t, adam, layers, sample)
			for i := range copies {
				change, err := UnmarshalChange(changes[i])
				mustSucceed(t, err)
				copies[i], err = DefaultAdam().Follow(copies[i], change, 1)
				mustSucceed(t, err)
				if Digest(copies[i]) != Digest(layers[i]) {
					t.Fatalf("seed %d step %d: layer %d is not the trained one", seed, number, i)
				}
			}
		}
	}
}

func TestAChangeThatDoesNotFitItsLayerIsRefused(t *testing.T) {
	layers, sample := randomModel(t, 4)
	_, changes := step(t, DefaultAdam(), layers, sample)
	good, err := UnmarshalChange(changes[1])
	mustSucceed(t, err)
	if _, err := DefaultAdam().Follow(layers[1], good, 1); err != nil {
		t.Fatalf("the change before: %v", err)
	}
	for name, c := range map[string]struct {
		spoil func(*Change)
		named string
	}{
		"another layer":        {func(c *Change) { c.Layer++ }, "layer 2"},
		"the step before":      {func(c *Change) { c.Step-- }, "step 0"},
		"a step left out":      {func(c *Change) { c.Step++ }, "step 2"},
		"no learning rate":     {func(c *Change) { c.LearningRate = 0 }, "learning rate"},
		"no number for a rate": {func(c *Change) { c.LearningRate = math.NaN() }, "learning rate"},
		"sums of another size": {func(c *Change) { c.Sums = gradient.NewAccumulator(3) }, "3 elements"},
		"half a batch":         {func(c *Change) { c.Sums = gradient.NewAccumulator(len(c.Sums.Sums)) }, "0 samples"},
	} {
		bad := good
		c.spoil(&bad)
		if _, err := DefaultAdam().Follow(layers[1], bad, 1); err == nil || !strings.Contains(err.Error(), c.named) {
			t.Errorf("%s: error is %v: expected one that names %q", name, err, c.named)
		}
	}
}

func TestBytesThatNoChangeWroteAreRefused(t *testing.T) {
	layers, sample := randomModel(t, 4)
	_, changes := step(t, DefaultAdam(), layers, sample)
	good := changes[0]
	field := func(offset int, value uint64) []byte {
		changed := slices.Clone(good)
		binary.LittleEndian.PutUint64(changed[offset:], value)
		return changed
	}
	for name, encoded := range map[string][]byte{
		"empty":              nil,
		"header only":        good[:changeHeaderBytes],
		"truncated":          good[:len(good)-1],
		"too long":           append(slices.Clone(good), 0),
		"a layer's bytes":    MarshalLayer(layers[0]),
		"a layer too large":  field(8, math.MaxInt32+1),
		"a step too large":   field(16, math.MaxUint64),
		"too many additions": field(changeHeaderBytes, gradient.MaximumAdditions+1),
		"an impossible sum":  field(changeHeaderBytes+8, 1<<62),
	} {
		if _, err := UnmarshalChange(encoded); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// BenchmarkFollow is what a receiver does to a layer of some MiB for each step that it follows.
func BenchmarkFollow(b *testing.B) {
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
		change := Change{1, 1, DefaultAdam().LearningRate, sums}
		data, encoded := MarshalLayer(layer), MarshalChange(change)
		name := fmt.Sprintf("%d KiB", len(data)>>10)
		b.Run("change of "+name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				MarshalChange(change)
			}
		})
		b.Run("apply to "+name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				before, err := UnmarshalLayer(data)
				if err != nil {
					b.Fatal(err)
				}
				change, err := UnmarshalChange(encoded)
				if err != nil {
					b.Fatal(err)
				}
				next, err := DefaultAdam().Follow(before, change, 1)
				if err != nil {
					b.Fatal(err)
				}
				MarshalLayer(next)
			}
		})
	}
}
