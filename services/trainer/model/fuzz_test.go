package model

import (
	"bytes"
	"testing"
)

// FuzzChange applies any bytes as what a step changed in a layer: they are refused, or bring the layer one step on, to
// something that is a layer.
func FuzzChange(f *testing.F) {
	layers, sample := randomModel(f, 1)
	run := newRunner(layers)
	run.run(f, sample)
	layer := layers[0]
	f.Add(MarshalChange(layer.Index, layer.Step+1, 0.01, run.sums[0]))
	f.Add([]byte(changeMagic))
	f.Fuzz(func(t *testing.T, change []byte) {
		before := MarshalLayer(layer)
		next, err := DefaultAdam().ApplyChange(layer, change, 1)
		if !bytes.Equal(MarshalLayer(layer), before) {
			t.Fatal("the layer itself was changed")
		}
		if err != nil {
			return
		}
		if next.Step != layer.Step+1 || next.Index != layer.Index {
			t.Errorf("layer %d at step %d follows on layer %d at step %d", next.Index, next.Step, layer.Index, layer.Step)
		}
		if _, err := UnmarshalLayer(MarshalLayer(next)); err != nil {
			t.Errorf("the change is taken, and nobody can take the layer: %v", err)
		}
	})
}
