package model

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

const (
	// magic begins the canonical bytes of a whole layer; the digit is the version of the form.
	magic = "RKLAYER1"
	// partMagic begins those of a unit where the optimizer state is cut into partitions.
	partMagic = "RKLAYRP1"
)

// header is the magic, the unit, the step and the sizes of the shape, each number as 8 bytes little endian; the
// partitions are there only where there are some.
func (s Shape) header(unit, step int) []byte {
	begin, fields := magic, []int{unit, step, s.Context, s.Window, s.Width, s.Hidden, s.Blocks, s.Vocabulary}
	if s.Partitions > 0 {
		begin, fields = partMagic, append(fields, s.Partitions)
	}
	header := []byte(begin)
	for _, field := range fields {
		header = binary.LittleEndian.AppendUint64(header, uint64(field))
	}
	return header
}

func (s Shape) headerBytes() int { return len(s.header(0, 0)) }

// MarshalLayer returns a unit's canonical bytes: the header, then the parameters,
// the first and the second moments as 4 bytes each, little endian.
func MarshalLayer(layer *Layer) []byte {
	encoded := make([]byte, 0, layer.Shape.StateBytes(layer.Index))
	encoded = append(encoded, layer.Shape.header(layer.Index, layer.Step)...)
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
	rest := encoded[layer.Shape.headerBytes():]
	for _, part := range []struct {
		name   string
		values []float32
	}{{"parameter", layer.Parameters}, {"first moment", layer.FirstMoment}, {"second moment", layer.SecondMoment}} {
		for i := range part.values {
			value := math.Float32frombits(binary.LittleEndian.Uint32(rest[4*i:]))
			// The difference of an infinity or a NaN with itself is not zero.
			if value-value != 0 {
				return nil, fmt.Errorf("layer state: layer %d %s %d is %v: expected a finite number",
					layer.Index, part.name, i, value)
			}
			part.values[i] = value
		}
		rest = rest[4*len(part.values):]
	}
	for i, value := range layer.SecondMoment {
		if value < 0 {
			return nil, fmt.Errorf("layer state: layer %d second moment %d is %v: expected at least 0",
				layer.Index, i, value)
		}
	}
	return layer, nil
}

// unmarshalHeader returns a unit of zeros with the header's fields, after checking
// that the rest has the length of such a unit: it allocates no more than was sent.
func unmarshalHeader(encoded []byte) (*Layer, error) {
	fields, err := headerFields(encoded)
	if err != nil {
		return nil, err
	}
	shape := Shape{
		Context: fields[2], Window: fields[3], Width: fields[4],
		Hidden: fields[5], Blocks: fields[6], Vocabulary: fields[7],
		Partitions: fields[8],
	}
	if err := shape.Validate(); err != nil {
		return nil, err
	}
	if err := shape.checkUnit(fields[0]); err != nil {
		return nil, err
	}
	if want := shape.StateBytes(fields[0]); len(encoded) != want {
		return nil, fmt.Errorf("layer %d has %d bytes: expected %d", fields[0], len(encoded), want)
	}
	return allocate(shape, fields[0], fields[1]), nil
}

// headerFields returns the numbers of a header, the last of which, the partitions, a whole layer's does not have.
func headerFields(encoded []byte) (fields [9]int, err error) {
	count := len(fields) - 1
	if len(encoded) < len(magic)+8*count {
		return fields, fmt.Errorf("%d bytes: expected at least the header's %d", len(encoded), len(magic)+8*count)
	}
	switch got := string(encoded[:len(magic)]); got {
	case magic:
	case partMagic:
		if count++; len(encoded) < len(magic)+8*count {
			return fields, fmt.Errorf("%d bytes: expected at least the header's %d", len(encoded), len(magic)+8*count)
		}
	default:
		return fields, fmt.Errorf("begins with %q: expected %q or %q", got, magic, partMagic)
	}
	for i := range fields[:count] {
		field := binary.LittleEndian.Uint64(encoded[len(magic)+8*i:])
		if field > math.MaxInt32 {
			return fields, fmt.Errorf("header field %d is %d: expected at most %d", i, field, math.MaxInt32)
		}
		fields[i] = int(field)
	}
	if count == len(fields) && fields[count-1] == 0 {
		return fields, fmt.Errorf("header field %d is 0: expected at least 1 partition after %q", count-1, partMagic)
	}
	return fields, nil
}

// StateBytes is the length of a unit's canonical bytes.
func (s Shape) StateBytes(unit int) int {
	first, end := s.moments(unit)
	return s.headerBytes() + 4*s.parameters(unit) + 8*(end-first)
}

// blockBytes is the length of the blocks of which the digest of a larger unit is made, as events has it.
const blockBytes = 8 << 20

// Digest returns the digest of the unit that the layer's canonical bytes are.
func Digest(layer *Layer) string {
	var blocks []string
	for block := range slices.Chunk(MarshalLayer(layer), blockBytes) {
		blocks = append(blocks, digest(block))
	}
	if len(blocks) == 1 {
		return blocks[0]
	}
	return ModelDigest(blocks)
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
