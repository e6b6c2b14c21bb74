package gradient

import (
	"encoding/binary"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
)

// randomGradients returns gradients of very different magnitudes, so that a float32
// sum of them would tell the order.
func randomGradients(random *rand.Rand, count, length int) [][]float32 {
	gradients := make([][]float32, count)
	for i := range gradients {
		gradients[i] = make([]float32, length)
		for j := range gradients[i] {
			gradients[i][j] = float32((2*random.Float64() - 1) * math.Pow(2, float64(random.IntN(40)-28)))
		}
	}
	return gradients
}

// exactSum is the slow twin: unbounded integers, one multiple of 1/Scale per gradient.
func exactSum(gradients [][]float32, element int) *big.Int {
	sum := new(big.Int)
	for _, gradient := range gradients {
		scaled := new(big.Float).Mul(big.NewFloat(float64(gradient[element])), big.NewFloat(Scale))
		units, _ := scaled.Int(nil)
		sum.Add(sum, units)
	}
	return sum
}

func TestTheSumIsExactWhateverTheOrderAndTheSplit(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 0))
		gradients := randomGradients(random, 1+random.IntN(30), 1+random.IntN(9))
		parts := make([]*Accumulator, 1+random.IntN(4))
		for i := range parts {
			parts[i] = NewAccumulator(len(gradients[0]))
		}
		for _, i := range random.Perm(len(gradients)) {
			mustSucceed(t, parts[random.IntN(len(parts))].Add(gradients[i]))
		}
		total := NewAccumulator(len(gradients[0]))
		for _, i := range random.Perm(len(parts)) {
			if random.IntN(2) == 0 {
				mustSucceed(t, total.Merge(parts[i]))
			} else {
				mustSucceed(t, total.MergeBytes(parts[i].AppendBytes(nil)))
			}
		}
		if total.Additions != len(gradients) {
			t.Fatalf("seed %d: %d additions: expected %d", seed, total.Additions, len(gradients))
		}
		for i, sum := range total.Sums {
			if want := exactSum(gradients, i); want.Cmp(big.NewInt(sum)) != 0 {
				t.Fatalf("seed %d: sum %d is %d: expected %s", seed, i, sum, want)
			}
		}
	}
}

func TestTheMeanIsTheSumOverTheAdditions(t *testing.T) {
	a := NewAccumulator(1)
	for _, value := range []float32{1, 2, 4.5} {
		mustSucceed(t, a.Add([]float32{value}))
	}
	if mean := a.Mean(0); mean != 2.5 {
		t.Errorf("mean is %v: expected 2.5", mean)
	}
}

func TestABadGradientIsRefusedAndLeavesTheSumAsItWas(t *testing.T) {
	infinity := float32(math.Inf(1))
	for _, bad := range []float32{float32(math.NaN()), infinity, -infinity, Limit, -Limit, math.MaxFloat32} {
		a := NewAccumulator(3)
		mustSucceed(t, a.Add([]float32{1, -2, 3}))
		before := slices.Clone(a.Sums)
		if err := a.Add([]float32{0.5, bad, 0.25}); err == nil {
			t.Errorf("gradient %v was accepted", bad)
		}
		if !slices.Equal(a.Sums, before) || a.Additions != 1 {
			t.Errorf("gradient %v left sums %v after %d additions: expected %v after 1", bad, a.Sums, a.Additions, before)
		}
	}
	if err := NewAccumulator(3).Add([]float32{1, 2}); err == nil {
		t.Error("a gradient of another length was accepted")
	}
}

func TestTheLargestGradientsFillTheSumWithoutOverflow(t *testing.T) {
	largest := math.Nextafter32(Limit, 0)
	for _, value := range []float32{largest, -largest} {
		a := NewAccumulator(1)
		for range MaximumAdditions {
			mustSucceed(t, a.Add([]float32{value}))
		}
		if want := int64(float64(value)*Scale) * MaximumAdditions; a.Sums[0] != want {
			t.Errorf("sum is %d: expected %d", a.Sums[0], want)
		}
		if err := a.Add([]float32{value}); err == nil {
			t.Errorf("addition %d was accepted", MaximumAdditions+1)
		}
		one := NewAccumulator(1)
		mustSucceed(t, one.Add([]float32{value}))
		if err := one.Merge(a); err == nil {
			t.Errorf("a merge to %d additions was accepted", MaximumAdditions+1)
		}
		if want := int64(float64(value) * Scale); one.Sums[0] != want || one.Additions != 1 {
			t.Errorf("the refused merge left sum %d: expected %d", one.Sums[0], want)
		}
	}
}

func TestBytesThatNoAccumulatorWroteAreRefused(t *testing.T) {
	a := NewAccumulator(2)
	mustSucceed(t, a.Add([]float32{1, -1}))
	good := a.AppendBytes(nil)
	of := func(numbers ...int64) (encoded []byte) {
		for _, number := range numbers {
			encoded = binary.AppendVarint(encoded, number)
		}
		return encoded
	}
	if !slices.Equal(of(1, Scale, -Scale), good) {
		t.Fatalf("wrote %x: expected %x", good, of(1, Scale, -Scale))
	}
	for name, encoded := range map[string][]byte{
		"empty":                nil,
		"truncated":            good[:len(good)-1],
		"a sum too few":        of(1, Scale),
		"a sum too many":       of(1, Scale, -Scale, 0),
		"a number without end": slices.Concat(of(1, Scale), slices.Repeat([]byte{0xff}, 11)),
		"too many additions":   of(MaximumAdditions+1, Scale, -Scale),
		"negative additions":   of(-1, Scale, -Scale),
		"sum without terms":    of(0, Scale, 0),
		"sum over the bound":   of(1, Limit*Scale+1, 0),
		"sum under the bound":  of(1, 0, math.MinInt64),
	} {
		total := NewAccumulator(2)
		if err := total.MergeBytes(encoded); err == nil {
			t.Errorf("%s: accepted", name)
		}
		if total.Additions != 0 || total.Sums[0] != 0 || total.Sums[1] != 0 {
			t.Errorf("%s: left sums %v after %d additions: expected none", name, total.Sums, total.Additions)
		}
	}
}

func TestResetMakesTheZeroSum(t *testing.T) {
	a := NewAccumulator(1)
	mustSucceed(t, a.Add([]float32{1}))
	a.Reset()
	if a.Sums[0] != 0 || a.Additions != 0 {
		t.Errorf("sums are %v after %d additions: expected none", a.Sums, a.Additions)
	}
}

func mustSucceed(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
