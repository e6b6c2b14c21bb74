package model

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/reknit/reknit/services/trainer/gradient"
)

// Change is what one step did to a layer: with the layer before it, all that Adam needs.
type Change struct {
	// Layer is the index, and Step the number of updates after this one.
	Layer, Step int
	// LearningRate was in force, a plan's scale included.
	LearningRate float64
	// Sums are the gradients of the whole global batch.
	Sums *gradient.Accumulator
}

const (
	// changeMagic begins a change's bytes; the digit is the version of the form.
	changeMagic = "RKCHANG1"
	// changeHeaderBytes is the magic, the layer, the step and the learning rate, as 8 bytes each, little endian.
	changeHeaderBytes = len(changeMagic) + 3*8
)

// MarshalChange returns the bytes of a change: the header, then the wire form of the sums.
func MarshalChange(change Change) []byte {
	encoded := make([]byte, 0, changeHeaderBytes+change.Sums.EncodedBytes())
	encoded = append(encoded, changeMagic...)
	for _, field := range []uint64{uint64(change.Layer), uint64(change.Step), math.Float64bits(change.LearningRate)} {
		encoded = binary.LittleEndian.AppendUint64(encoded, field)
	}
	return change.Sums.AppendBytes(encoded)
}

// UnmarshalChange is the inverse of MarshalChange. Another magic, a layer or a step out of range, and sums that no
// gradients can have are errors; whether it fits a layer is asked by Apply.
func UnmarshalChange(encoded []byte) (Change, error) {
	var change Change
	if len(encoded) < changeHeaderBytes {
		return change, fmt.Errorf("change: %d bytes: expected at least the header's %d", len(encoded), changeHeaderBytes)
	}
	if got := string(encoded[:len(changeMagic)]); got != changeMagic {
		return change, fmt.Errorf("change: begins with %q: expected %q", got, changeMagic)
	}
	for i, field := range []*int{&change.Layer, &change.Step} {
		value := binary.LittleEndian.Uint64(encoded[len(changeMagic)+8*i:])
		if value > math.MaxInt32 {
			return change, fmt.Errorf("change: header field %d is %d: expected at most %d", i, value, math.MaxInt32)
		}
		*field = int(value)
	}
	change.LearningRate = math.Float64frombits(binary.LittleEndian.Uint64(encoded[changeHeaderBytes-8:]))
	sums := encoded[changeHeaderBytes:]
	change.Sums = gradient.NewAccumulator(max(0, len(sums)/8-1))
	if err := change.Sums.MergeBytes(sums); err != nil {
		return change, fmt.Errorf("change of layer %d at step %d: %w", change.Layer, change.Step, err)
	}
	return change, nil
}

// Follow returns the layer one step on, as the step itself made it. A change of another layer or step, or one that is
// not of the whole global batch, is an error.
func (a Adam) Follow(layer *Layer, change Change, globalBatch int) (*Layer, error) {
	if change.Layer != layer.Index {
		return nil, fmt.Errorf("change is of layer %d: expected %d", change.Layer, layer.Index)
	}
	if change.Step != layer.Step+1 {
		return nil, fmt.Errorf("layer %d: change is of step %d: expected %d", layer.Index, change.Step, layer.Step+1)
	}
	a.LearningRate = change.LearningRate
	return a.Apply(layer, change.Sums, globalBatch)
}
