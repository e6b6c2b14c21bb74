package model

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"testing"
)

// trainedLayers returns the layers of a small model one step on, so that the moments
// are not zero.
func trainedLayers(t *testing.T, seed uint64) []*Layer {
	t.Helper()
	layers, sample := randomModel(t, seed)
	run := newRunner(layers)
	run.run(t, sample)
	for i, layer := range layers {
		next, err := DefaultAdam().Apply(layer, run.sums[i], 1)
		if err != nil {
			t.Fatal(err)
		}
		layers[i] = next
	}
	return layers
}

func TestALayersBytesBringItBack(t *testing.T) {
	for seed := range uint64(30) {
		for _, layer := range trainedLayers(t, seed) {
			encoded := MarshalLayer(layer)
			back, err := UnmarshalLayer(encoded)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if back.Shape != layer.Shape || back.Index != layer.Index || back.Step != 1 {
				t.Fatalf("seed %d: layer %d of %v at step %d came back as %d of %v at step %d",
					seed, layer.Index, layer.Shape, layer.Step, back.Index, back.Shape, back.Step)
			}
			if !slices.Equal(back.Parameters, layer.Parameters) || !slices.Equal(back.FirstMoment, layer.FirstMoment) ||
				!slices.Equal(back.SecondMoment, layer.SecondMoment) {
				t.Fatalf("seed %d: layer %d came back with other numbers", seed, layer.Index)
			}
			if len(encoded) != layer.Shape.StateBytes(layer.Index) {
				t.Fatalf("seed %d: %d bytes: expected %d", seed, len(encoded), layer.Shape.StateBytes(layer.Index))
			}
		}
	}
}

// headerBytes is the length of a whole layer's header.
const headerBytes = 8 + 8*8

// spoiltHeaders are bytes of a good layer with one thing wrong in each.
func spoiltHeaders(good []byte) map[string][]byte {
	field := func(index int, value uint64) []byte {
		changed := slices.Clone(good)
		binary.LittleEndian.PutUint64(changed[len(magic)+8*index:], value)
		return changed
	}
	return map[string][]byte{
		"empty":                nil,
		"header only":          good[:headerBytes],
		"truncated":            good[:len(good)-1],
		"too long":             append(slices.Clone(good), 0),
		"another magic":        append([]byte("RKLAYER2"), good[len(magic):]...),
		"layer beyond the end": field(0, 99),
		"negative layer":       field(0, math.MaxUint64),
		"negative step":        field(1, math.MaxUint64),
		"no context":           field(2, 0),
		"huge window":          field(3, 1<<40),
		"no width":             field(4, 0),
		"another width":        field(4, 9),
		"huge hidden":          field(5, math.MaxInt32),
		"huge blocks":          field(6, math.MaxInt32),
		"vocabulary over 256":  field(7, 257),
	}
}

func TestBytesThatNoLayerWroteAreRefused(t *testing.T) {
	good := MarshalLayer(trainedLayers(t, 1)[0])
	for name, encoded := range spoiltHeaders(good) {
		if _, err := UnmarshalLayer(encoded); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	number := func(offset int, value float64) []byte {
		changed := slices.Clone(good)
		binary.LittleEndian.PutUint32(changed[offset:], math.Float32bits(float32(value)))
		return changed
	}
	for name, encoded := range map[string][]byte{
		"parameter not a number": number(headerBytes, math.NaN()),
		"infinite parameter":     number(headerBytes, math.Inf(-1)),
		"infinite moment":        number(len(good)-4, math.Inf(1)),
		"negative second moment": number(len(good)-4, -1),
	} {
		if _, err := UnmarshalLayer(encoded); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func FuzzLayerBytesAreRefusedOrCanonical(f *testing.F) {
	layer, err := NewLayer(Shape{Context: 1, Window: 1, Width: 1, Hidden: 1, Blocks: 1, Vocabulary: 2}, 1, 1)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(MarshalLayer(layer))
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, encoded []byte) {
		layer, err := UnmarshalLayer(encoded)
		if err == nil && !bytes.Equal(MarshalLayer(layer), encoded) {
			t.Errorf("%x was accepted, and is not what its layer's bytes are", encoded)
		}
	})
}

func TestTheDigestTellsEveryDifference(t *testing.T) {
	good := MarshalLayer(trainedLayers(t, 1)[0])
	layer, err := UnmarshalLayer(good)
	if err != nil {
		t.Fatal(err)
	}
	digest := Digest(layer)
	for name, change := range map[string]func(*Layer){
		"step":          func(l *Layer) { l.Step++ },
		"window":        func(l *Layer) { l.Shape.Window++ },
		"parameter":     func(l *Layer) { l.Parameters[0] = math.Nextafter32(l.Parameters[0], 9) },
		"first moment":  func(l *Layer) { l.FirstMoment[0] = math.Nextafter32(l.FirstMoment[0], 9) },
		"second moment": func(l *Layer) { l.SecondMoment[0] = math.Nextafter32(l.SecondMoment[0], 9) },
	} {
		changed, err := UnmarshalLayer(good)
		if err != nil {
			t.Fatal(err)
		}
		if Digest(changed) != digest {
			t.Fatal("the same bytes have two digests")
		}
		if change(changed); Digest(changed) == digest {
			t.Errorf("another %s has the same digest", name)
		}
	}
	if ModelDigest([]string{"a", "b"}) == ModelDigest([]string{"b", "a"}) {
		t.Error("the order of the layers does not count")
	}
	if ModelDigest([]string{"a", "b"}) == ModelDigest([]string{"ab"}) {
		t.Error("where a layer ends does not count")
	}
}
