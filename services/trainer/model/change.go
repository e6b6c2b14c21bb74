package model

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/reknit/reknit/services/trainer/gradient"
)

const (
	// changeMagic begins a change's bytes; the digit is the version of the form.
	changeMagic = "RKCHANG1"
	// changeHeaderBytes is the magic, the layer's index, its step and the learning rate, as 8 bytes each, little
	// endian.
	changeHeaderBytes = len(changeMagic) + 3*8
)

// MarshalChange returns what the step that brought a layer, or a partition of its optimizer state, to this one did to
// it: a header, then the wire form of the sums, which are of the whole global batch. The learning rate is the one in
// force, a plan's scale included. The change of parameters alone is their own canonical bytes: the sums do not tell it
// without the moments.
func MarshalChange(layer, step int, learningRate float64, sums *gradient.Accumulator) []byte {
	encoded := make([]byte, 0, changeHeaderBytes+4*len(sums.Sums)) // about; it grows
	encoded = append(encoded, changeMagic...)
	for _, field := range []uint64{uint64(layer), uint64(step), math.Float64bits(learningRate)} {
		encoded = binary.LittleEndian.AppendUint64(encoded, field)
	}
	return sums.AppendBytes(encoded)
}

// ApplyChange returns a layer one step on, with the bits that the step gave it. Bytes that are not the change of this
// layer by its next step, from the whole global batch, are an error.
func (a Adam) ApplyChange(layer *Layer, change []byte, globalBatch int) (*Layer, error) {
	if len(layer.FirstMoment) == 0 && len(layer.Parameters) > 0 {
		return replace(layer, change)
	}
	if len(change) < changeHeaderBytes {
		return nil, fmt.Errorf("change has %d bytes: expected at least the header's %d", len(change), changeHeaderBytes)
	}
	if got := string(change[:len(changeMagic)]); got != changeMagic {
		return nil, fmt.Errorf("change begins with %q: expected %q", got, changeMagic)
	}
	var fields [3]uint64
	for i := range fields {
		fields[i] = binary.LittleEndian.Uint64(change[len(changeMagic)+8*i:])
	}
	if fields[0] != uint64(layer.Index) || fields[1] != uint64(layer.Step)+1 {
		return nil, fmt.Errorf("change is of layer %d at step %d: expected layer %d at step %d",
			fields[0], fields[1], layer.Index, layer.Step+1)
	}
	a.LearningRate = math.Float64frombits(fields[2])
	sums := gradient.NewAccumulator(len(layer.FirstMoment))
	if err := sums.MergeBytes(change[changeHeaderBytes:]); err != nil {
		return nil, fmt.Errorf("change of layer %d at step %d: %w", layer.Index, layer.Step+1, err)
	}
	if len(layer.Parameters) == 0 {
		nobodys := make([]float32, len(layer.FirstMoment)) // the moments do not depend on the parameters
		return a.ApplyPart(layer, nobodys, nobodys, sums, globalBatch)
	}
	return a.Apply(layer, sums, globalBatch)
}

// replace returns the parameters of a layer's next step from their canonical bytes.
func replace(layer *Layer, change []byte) (*Layer, error) {
	next, err := UnmarshalLayer(change)
	if err != nil {
		return nil, err
	}
	if next.Index != layer.Index || next.Step != layer.Step+1 || next.Shape != layer.Shape {
		return nil, fmt.Errorf("change is of layer %d at step %d: expected layer %d at step %d",
			next.Index, next.Step, layer.Index, layer.Step+1)
	}
	return next, nil
}
