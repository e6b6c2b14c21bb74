package model

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
)

// magic begins a layer's canonical bytes; the digit is the version of the form.
const magic = "RKLAYER1"

// headerBytes is the magic, the layer index, the step and the six sizes of the shape,
// each number as 8 bytes little endian.
const headerBytes = len(magic) + 8*8

// MarshalLayer returns the layer's canonical bytes: the header, then the parameters,
// the first and the second moments as 4 bytes each, little endian.
func MarshalLayer(layer *Layer) []byte {
	s := layer.Shape
	encoded := make([]byte, 0, headerBytes+12*len(layer.Parameters))
	encoded = append(encoded, magic...)
	for _, field := range []int{layer.Index, layer.Step, s.Context, s.Window, s.Width, s.Hidden, s.Blocks, s.Vocabulary} {
		encoded = binary.LittleEndian.AppendUint64(encoded, uint64(field))
	}
	for _, values := range [][]float32{layer.Parameters, layer.FirstMoment, layer.SecondMoment} {
		for _, value := range values {
			encoded = binary.LittleEndian.AppendUint32(encoded, math.Float32bits(value))
		}
	}
	return encoded
}

// UnmarshalLayer is the inverse of MarshalLayer. Another magic, a shape or an index out
// of range, any other length than the header asks for, a value that is not finite and a
// negative second moment are errors.
func UnmarshalLayer(encoded []byte) (*Layer, error) {
	layer, err := unmarshalHeader(encoded)
	if err != nil {
		return nil, fmt.Errorf("layer state: %w", err)
	}
	rest := encoded[headerBytes:]
	for _, part := range []struct {
		name   string
		values []float32
	}{{"parameter", layer.Parameters}, {"first moment", layer.FirstMoment}, {"second moment", layer.SecondMoment}} {
		for i := range part.values {
			value := math.Float32frombits(binary.LittleEndian.Uint32(rest[4*i:]))
			// The difference of an infinity or a NaN with itself is not zero.
			if value-value != 0 {
				return nil, fmt.Errorf("layer state: layer %d %s %d is %v: expected a finite number", layer.Index, part.name, i, value)
			}
			part.values[i] = value
		}
		rest = rest[4*len(part.values):]
	}
	for i, value := range layer.SecondMoment {
		if value < 0 {
			return nil, fmt.Errorf("layer state: layer %d second moment %d is %v: expected at least 0", layer.Index, i, value)
		}
	}
	return layer, nil
}

// unmarshalHeader returns a layer of zeros with the header's fields, after checking
// that the rest has the length of such a layer: it allocates no more than was sent.
func unmarshalHeader(encoded []byte) (*Layer, error) {
	if len(encoded) < headerBytes {
		return nil, fmt.Errorf("%d bytes: expected at least the header's %d", len(encoded), headerBytes)
	}
	if got := string(encoded[:len(magic)]); got != magic {
		return nil, fmt.Errorf("begins with %q: expected %q", got, magic)
	}
	var fields [8]int
	for i := range fields {
		field := binary.LittleEndian.Uint64(encoded[len(magic)+8*i:])
		if field > math.MaxInt32 {
			return nil, fmt.Errorf("header field %d is %d: expected at most %d", i, field, math.MaxInt32)
		}
		fields[i] = int(field)
	}
	shape := Shape{Context: fields[2], Window: fields[3], Width: fields[4], Hidden: fields[5], Blocks: fields[6], Vocabulary: fields[7]}
	if err := shape.Validate(); err != nil {
		return nil, err
	}
	if err := shape.checkLayer(fields[0]); err != nil {
		return nil, err
	}
	if want := shape.StateBytes(fields[0]); len(encoded) != want {
		return nil, fmt.Errorf("layer %d has %d bytes: expected %d", fields[0], len(encoded), want)
	}
	return allocate(shape, fields[0], fields[1]), nil
}

// StateBytes is the length of a layer's canonical bytes.
func (s Shape) StateBytes(layer int) int {
	return headerBytes + 12*s.Parameters(layer)
}

// Digest returns "sha256:" and the hexadecimal SHA-256 of the layer's canonical bytes.
func Digest(layer *Layer) string {
	return digest(MarshalLayer(layer))
}

// ModelDigest returns the digest of a whole model from its layers' digests, first layer
// first: the SHA-256 of the digests, each ended by a newline.
func ModelDigest(layerDigests []string) string {
	var joined []byte
	for _, layerDigest := range layerDigests {
		joined = append(joined, layerDigest...)
		joined = append(joined, '\n')
	}
	return digest(joined)
}

func digest(content []byte) string {
	return fmt.Sprintf("sha256:%x", sha256.Sum256(content))
}
