// Package layers writes down which layers of the model a node holds: as half-open ranges, the way a plan does, and as
// bit sets, the way the restorer's algorithms compare them.
package layers

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
)

// Range is the layers from First up to, but not including, End.
type Range struct{ First, End int }

// Set is a set of layers of a model whose number of layers was fixed when the set was made. Sets that are combined must
// come from the same model. The zero value is the empty set of a model without layers.
type Set struct{ words []uint64 }

// NewSet returns the union of ranges in a model of count layers. Ranges may overlap and come in any order.
// It fails when a range does not lie in [0, count).
func NewSet(count int, ranges ...Range) (Set, error) {
	set := Set{make([]uint64, (count+63)/64)}
	for _, r := range ranges {
		if r.First < 0 || r.End < r.First || r.End > count {
			return Set{}, fmt.Errorf("layers [%d,%d): expected 0 <= first <= end <= %d", r.First, r.End, count)
		}
		for layer := r.First; layer < r.End; layer++ {
			set.words[layer/64] |= 1 << (layer % 64)
		}
	}
	return set, nil
}

// Has reports whether layer is in the set.
func (s Set) Has(layer int) bool {
	return s.words[layer/64]>>(layer%64)&1 == 1
}

// Len returns the number of layers in the set.
func (s Set) Len() int {
	total := 0
	for _, word := range s.words {
		total += bits.OnesCount64(word)
	}
	return total
}

// Minus returns the layers of s that are not in other.
func (s Set) Minus(other Set) Set {
	rest := Set{make([]uint64, len(s.words))}
	for i, word := range s.words {
		rest.words[i] = word &^ other.words[i]
	}
	return rest
}

// Members returns the layers of the set, ascending.
func (s Set) Members() []int {
	members := slices.Grow([]int(nil), s.Len())
	for i, word := range s.words {
		for ; word != 0; word &= word - 1 {
			members = append(members, i*64+bits.TrailingZeros64(word))
		}
	}
	return members
}

// Ranges returns the set as ranges that neither overlap nor touch, ascending.
func (s Set) Ranges() []Range {
	var ranges []Range
	for _, layer := range s.Members() {
		if last := len(ranges) - 1; last >= 0 && ranges[last].End == layer {
			ranges[last].End++
		} else {
			ranges = append(ranges, Range{layer, layer + 1})
		}
	}
	return ranges
}

// AppendKey appends bytes that are equal for equal sets of one model, for use as a map key.
func (s Set) AppendKey(key []byte) []byte {
	for _, word := range s.words {
		key = binary.LittleEndian.AppendUint64(key, word)
	}
	return key
}
