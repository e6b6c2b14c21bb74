// Package gradient adds micro-batch gradients so that the sum does not depend
// on who computed which one, or in which order.
//
// Floating point addition is not associative, so a float sum tells the order of
// its terms. Integer addition is, so each float32 gradient is converted once,
// to a multiple of 2^-36, and added as an int64.
package gradient

import (
	"encoding/binary"
	"fmt"
)

// The three limits fit together: 2^12 (largest gradient) x 2^36 (scale) x 2^14
// (additions) = 2^62, so a sum within them cannot overflow whatever its order.
// A running overflow check could not promise that: it would depend on the order.
const (
	// Scale is the number of fixed-point units in 1.0.
	Scale = 1 << 36
	// Limit is the bound on one micro-batch's gradient: |gradient| < Limit.
	Limit = 1 << 12
	// MaximumAdditions is how many micro-batches one sum may hold.
	MaximumAdditions = 1 << 14
)

// Accumulator is a sum of micro-batch gradients, element by element.
type Accumulator struct {
	// Sums are in units of 1/Scale.
	Sums []int64
	// Additions is how many micro-batches the sums hold.
	Additions int
}

// NewAccumulator returns the zero sum of gradients of the given length.
func NewAccumulator(length int) *Accumulator {
	return &Accumulator{Sums: make([]int64, length)}
}

// Reset makes it the zero sum again, keeping its memory.
func (a *Accumulator) Reset() {
	clear(a.Sums)
	a.Additions = 0
}

// Add adds the gradient of one micro-batch. Each element is rounded towards zero to
// a multiple of 1/Scale. A wrong length, a value that is not a number or reaches
// Limit, and too many additions are errors, and leave the sum as it was.
func (a *Accumulator) Add(gradient []float32) error {
	if err := a.admit(len(gradient), 1); err != nil {
		return err
	}
	sums := a.Sums[:len(gradient)]
	for i, value := range gradient {
		// Written so that a NaN, which compares false with everything, is refused too.
		if !(value > -Limit && value < Limit) {
			a.takeBack(gradient[:i])
			return fmt.Errorf("gradient[%d] is %v: expected a number between -%d and %d", i, value, Limit, Limit)
		}
		sums[i] += fixed(value)
	}
	a.Additions++
	return nil
}

// takeBack subtracts what Add added before it met a bad value: exact, since integers.
func (a *Accumulator) takeBack(gradient []float32) {
	for i, value := range gradient {
		a.Sums[i] -= fixed(value)
	}
}

// fixed converts to units of 1/Scale. The product is exact: Scale is a power of two.
func fixed(value float32) int64 {
	return int64(float64(value) * Scale)
}

// Merge adds another accumulator's sum. The errors are Add's, for the other's sums
// and additions, and leave the sum as it was.
func (a *Accumulator) Merge(other *Accumulator) error {
	if err := a.admit(len(other.Sums), other.Additions); err != nil {
		return err
	}
	for i, sum := range other.Sums {
		if err := plausible(i, sum, other.Additions); err != nil {
			return err
		}
	}
	for i, sum := range other.Sums {
		a.Sums[i] += sum
	}
	a.Additions += other.Additions
	return nil
}

// Mean returns element i averaged over the additions, which must not be zero.
func (a *Accumulator) Mean(i int) float64 {
	return float64(a.Sums[i]) / (float64(a.Additions) * Scale)
}

// AppendBytes appends the wire form: the additions and then the sums, each as a signed varint (encoding/binary). Most
// gradients are small: of 8 bytes a sum, 2 to 4 are left.
func (a *Accumulator) AppendBytes(destination []byte) []byte {
	destination = binary.AppendVarint(destination, int64(a.Additions))
	for _, sum := range a.Sums {
		destination = binary.AppendVarint(destination, sum)
	}
	return destination
}

// MergeBytes merges another accumulator's wire form, with Merge's errors.
func (a *Accumulator) MergeBytes(encoded []byte) error {
	additions, length := binary.Varint(encoded)
	if length <= 0 || additions > MaximumAdditions {
		return fmt.Errorf("encoded sum has %d additions: expected at most %d", additions, MaximumAdditions)
	}
	other := NewAccumulator(len(a.Sums))
	other.Additions = int(additions)
	rest := encoded[length:]
	for i := range other.Sums {
		if other.Sums[i], length = binary.Varint(rest); length <= 0 {
			return fmt.Errorf("encoded sum ends or is spoiled at sums[%d]: expected %d sums", i, len(a.Sums))
		}
		rest = rest[length:]
	}
	if len(rest) > 0 {
		return fmt.Errorf("encoded sum has %d bytes behind its sums: expected %d sums", len(rest), len(a.Sums))
	}
	return a.Merge(other)
}

func (a *Accumulator) admit(length, additions int) error {
	if length != len(a.Sums) {
		return fmt.Errorf("gradient has %d elements: expected %d", length, len(a.Sums))
	}
	if additions < 0 || additions > MaximumAdditions-a.Additions {
		return fmt.Errorf("additions are %d and %d more: expected at most %d together",
			a.Additions, additions, MaximumAdditions)
	}
	return nil
}

// plausible refuses a sum that no such number of additions can have made.
func plausible(i int, sum int64, additions int) error {
	bound := int64(additions) * Limit * Scale
	if sum < -bound || sum > bound {
		return fmt.Errorf("sums[%d] is %d: expected at most %d in magnitude after %d additions",
			i, sum, bound, additions)
	}
	return nil
}
