package model

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/reknit/reknit/services/trainer/gradient"
)

// part returns the sums of the parameters whose moments a row holds.
func part(row *Layer, sums *gradient.Accumulator) *gradient.Accumulator {
	first, end := row.Shape.moments(row.Index)
	return &gradient.Accumulator{Sums: sums.Sums[first:end], Additions: sums.Additions}
}

func TestALayerTrainedInRowsIsTheWholeOneBitByBit(t *testing.T) {
	for seed := range uint64(10) {
		partitions := 1 + int(seed)%7
		layers, sample := randomModel(t, seed)
		var rows [][]*Layer // by layer: parameters, then partitions
		for _, layer := range layers {
			rows = append(rows, layer.Cut(partitions))
		}
		for number := range 5 {
			run := newRunner(layers)
			run.run(t, sample)
			for i, layer := range layers {
				whole, err := DefaultAdam().Apply(layer, run.sums[i], 1)
				mustSucceed(t, err)
				layers[i], rows[i] = whole, inRows(t, rows[i], run.sums[i])
				for r, want := range whole.Cut(partitions) {
					if Digest(rows[i][r]) != Digest(want) {
						t.Fatalf("seed %d step %d: row %d of layer %d of %d partitions is not that of the whole", seed, number, r, i, partitions)
					}
				}
			}
		}
	}
}

// inRows returns a layer's rows one step on, and checks that each is followed to the same bits by the change it tells.
func inRows(t *testing.T, rows []*Layer, sums *gradient.Accumulator) []*Layer {
	t.Helper()
	shape := rows[0].Shape
	next := []*Layer{allocate(shape, rows[0].Index, rows[0].Step+1)}
	for _, row := range rows[1:] {
		first, end := shape.moments(row.Index)
		trained, err := DefaultAdam().ApplyPart(row, rows[0].Parameters[first:end], next[0].Parameters[first:end], part(row, sums), 1)
		mustSucceed(t, err)
		next = append(next, trained)
	}
	for r, row := range rows {
		change := MarshalLayer(next[0])
		if r > 0 {
			change = MarshalChange(row.Index, next[r].Step, DefaultAdam().LearningRate, part(row, sums))
		}
		followed, err := DefaultAdam().Follow(row, change, 1)
		mustSucceed(t, err)
		if Digest(followed) != Digest(next[r]) {
			t.Fatalf("row %d is followed to other bits", row.Index)
		}
	}
	return next
}

func TestTheRowsOfALayerHoldAllOfItOnce(t *testing.T) {
	for partitions := range 9 {
		for _, layer := range trainedLayers(t, uint64(partitions)) {
			parameters, moments := 0, []float32{}
			for _, row := range layer.Cut(partitions) {
				parameters += len(row.Parameters)
				moments = append(moments, row.FirstMoment...)
				if got := row.Shape.LayerOf(row.Index); got != layer.Index {
					t.Fatalf("row %d is of layer %d: expected %d", row.Index, got, layer.Index)
				}
			}
			if parameters != len(layer.Parameters) || !slices.Equal(moments, layer.FirstMoment) {
				t.Fatalf("%d partitions of layer %d hold %d parameters and %d moments", partitions, layer.Index, parameters, len(moments))
			}
		}
	}
}

func TestARowsBytesBringItBack(t *testing.T) {
	for _, layer := range trainedLayers(t, 3) {
		for _, row := range layer.Cut(3) {
			encoded := MarshalLayer(row)
			back, err := UnmarshalLayer(encoded)
			if err != nil {
				t.Fatalf("row %d: %v", row.Index, err)
			}
			if back.Shape != row.Shape || back.Index != row.Index || !bytes.Equal(MarshalLayer(back), encoded) {
				t.Fatalf("row %d came back as row %d of %+v", row.Index, back.Index, back.Shape)
			}
		}
	}
}

func TestBytesThatNoRowWroteAreRefused(t *testing.T) {
	row := trainedLayers(t, 1)[0].Cut(2)[1]
	good := MarshalLayer(row)
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
	rows := func(layer, step int) []*Layer {
		at := *layers[layer]
		at.Step = step
		return at.Cut(2)
	}
	for name, change := range map[string]*Layer{
		"another layer's": rows(1, 2)[0], "the same step's": rows(0, 1)[0], "a partition's": rows(0, 2)[1],
	} {
		if _, err := DefaultAdam().Follow(rows(0, 1)[0], MarshalLayer(change), 1); err == nil || !strings.Contains(err.Error(), "expected layer 0 at step 2") {
			t.Errorf("%s: error is %v", name, err)
		}
	}
}
