package model

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/reknit/reknit/services/trainer/gradient"
)

// part returns the sums of the parameters whose moments a unit holds.
func part(unit *Layer, sums *gradient.Accumulator) *gradient.Accumulator {
	first, end := unit.Shape.moments(unit.Index)
	return &gradient.Accumulator{Sums: sums.Sums[first:end], Additions: sums.Additions}
}

func TestALayerTrainedInRowsIsTheWholeOneBitByBit(t *testing.T) {
	for seed := range uint64(10) {
		partitions := 1 + int(seed)%7
		layers, sample := randomModel(t, seed)
		var units [][]*Layer // by layer: parameters, then partitions
		for _, layer := range layers {
			units = append(units, layer.Cut(partitions))
		}
		for number := range 5 {
			run := newRunner(layers)
			run.run(t, sample)
			for i, layer := range layers {
				whole, err := DefaultAdam().Apply(layer, run.sums[i], 1)
				mustSucceed(t, err)
				layers[i], units[i] = whole, inUnits(t, units[i], run.sums[i])
				for r, want := range whole.Cut(partitions) {
					if Digest(units[i][r]) != Digest(want) {
						t.Fatalf("seed %d step %d: unit %d of layer %d of %d partitions is not that of the whole", seed, number, r, i,
							partitions)
					}
				}
			}
		}
	}
}

// inUnits returns a layer's units one step on, and checks that each is changed to the same bits by the change it
// tells.
func inUnits(t *testing.T, units []*Layer, sums *gradient.Accumulator) []*Layer {
	t.Helper()
	shape := units[0].Shape
	next := []*Layer{allocate(shape, units[0].Index, units[0].Step+1)}
	for _, unit := range units[1:] {
		first, end := shape.moments(unit.Index)
		trained, err := DefaultAdam().ApplyPart(unit, units[0].Parameters[first:end], next[0].Parameters[first:end],
			part(unit, sums), 1)
		mustSucceed(t, err)
		next = append(next, trained)
	}
	for r, unit := range units {
		change := MarshalLayer(next[0])
		if r > 0 {
			change = MarshalChange(unit.Index, next[r].Step, DefaultAdam().LearningRate, part(unit, sums))
		}
		changed, err := DefaultAdam().ApplyChange(unit, change, 1)
		mustSucceed(t, err)
		if Digest(changed) != Digest(next[r]) {
			t.Fatalf("unit %d is led to other bits by its change", unit.Index)
		}
	}
	return next
}

func TestTheRowsOfALayerHoldAllOfItOnce(t *testing.T) {
	for partitions := range 9 {
		for _, layer := range trainedLayers(t, uint64(partitions)) {
			parameters, moments := 0, []float32{}
			for _, unit := range layer.Cut(partitions) {
				parameters += len(unit.Parameters)
				moments = append(moments, unit.FirstMoment...)
				if got := unit.Shape.LayerOf(unit.Index); got != layer.Index {
					t.Fatalf("unit %d is of layer %d: expected %d", unit.Index, got, layer.Index)
				}
			}
			if parameters != len(layer.Parameters) || !slices.Equal(moments, layer.FirstMoment) {
				t.Fatalf("%d partitions of layer %d hold %d parameters and %d moments", partitions, layer.Index, parameters,
					len(moments))
			}
		}
	}
}

func TestARowsBytesBringItBack(t *testing.T) {
	for _, layer := range trainedLayers(t, 3) {
		for _, unit := range layer.Cut(3) {
			encoded := MarshalLayer(unit)
			back, err := UnmarshalLayer(encoded)
			if err != nil {
				t.Fatalf("unit %d: %v", unit.Index, err)
			}
			if back.Shape != unit.Shape || back.Index != unit.Index || !bytes.Equal(MarshalLayer(back), encoded) {
				t.Fatalf("unit %d came back as unit %d of %+v", unit.Index, back.Index, back.Shape)
			}
		}
	}
}

func TestBytesThatNoRowWroteAreRefused(t *testing.T) {
	unit := trainedLayers(t, 1)[0].Cut(2)[1]
	good := MarshalLayer(unit)
	for name, encoded := range spoiltHeaders(good) {
		if _, err := UnmarshalLayer(encoded); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	for name, partitions := range map[string]byte{"no partitions": 0, "other partitions": 3, "too many partitions": 65} {
		changed := slices.Clone(good)
		changed[len(partMagic)+8*8] = partitions
		if _, err := UnmarshalLayer(changed); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestOnlyTheNextParametersReplaceParameters(t *testing.T) {
	layers := trainedLayers(t, 2)
	units := func(layer, step int) []*Layer {
		at := *layers[layer]
		at.Step = step
		return at.Cut(2)
	}
	for name, change := range map[string]*Layer{
		"another layer's": units(1, 2)[0], "the same step's": units(0, 1)[0], "a partition's": units(0, 2)[1],
	} {
		if _, err := DefaultAdam().ApplyChange(units(0, 1)[0], MarshalLayer(change), 1); err == nil || !strings.Contains(err.Error(), "expected layer 0 at step 2") {
			t.Errorf("%s: error is %v", name, err)
		}
	}
}
