package gradient

import (
	"slices"
	"testing"
)

// FuzzSums merges any wire form: it is refused and changes nothing, or adds what its writer has.
func FuzzSums(f *testing.F) {
	three := NewAccumulator(3)
	if err := three.Add([]float32{1, -2, 0.5}); err != nil {
		f.Fatal(err)
	}
	f.Add(three.AppendBytes(nil))
	f.Add([]byte{0, 0, 0, 0})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Fuzz(func(t *testing.T, encoded []byte) {
		sum := NewAccumulator(3)
		if err := sum.MergeBytes(encoded); err != nil {
			if !slices.Equal(sum.Sums, []int64{0, 0, 0}) || sum.Additions != 0 {
				t.Errorf("refused, and left %+v", sum)
			}
			return
		}
		back := NewAccumulator(3)
		if err := back.MergeBytes(sum.AppendBytes(nil)); err != nil || !slices.Equal(back.Sums, sum.Sums) || back.Additions != sum.Additions {
			t.Errorf("%+v came back as %+v, %v", sum, back, err)
		}
	})
}
