package cluster

import (
	"math"
	"testing"
)

// FuzzQuantity reads any text as each kind of quantity: finite, and not below zero.
func FuzzQuantity(f *testing.F) {
	for _, text := range []string{"24GiB", "10Gbit/s", "250ms", "1e300TiB", "NaNB/s", "-1B", "0x1p-2MB", "9223372036854775807B"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var size Size
		if err := size.UnmarshalText([]byte(text)); err == nil && size < 0 {
			t.Errorf("%q is a size of %d", text, size)
		}
		var rate Rate
		if err := rate.UnmarshalText([]byte(text)); err == nil && !(rate > 0 && rate <= math.MaxFloat64) {
			t.Errorf("%q is a rate of %v", text, rate)
		}
		var span Span
		if err := span.UnmarshalText([]byte(text)); err == nil && !(span >= 0 && span <= math.MaxFloat64) {
			t.Errorf("%q is a time of %v", text, span)
		}
	})
}
