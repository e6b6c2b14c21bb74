package layers_test

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/reknit/reknit/services/restorer/layers"
)

func TestASetIsTheUnionOfItsRanges(t *testing.T) {
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 1))
		count := 1 + random.IntN(150)
		a, wantA := randomSet(t, random, count)
		b, wantB := randomSet(t, random, count)

		var members, rest []int
		for layer := range count {
			if wantA[layer] != a.Has(layer) {
				t.Fatalf("seed %d: Has(%d) = %t", seed, layer, a.Has(layer))
			}
			if wantA[layer] {
				members = append(members, layer)
			}
			if wantA[layer] && !wantB[layer] {
				rest = append(rest, layer)
			}
		}
		if !reflect.DeepEqual(a.Members(), members) || a.Len() != len(members) {
			t.Fatalf("seed %d: members %v, expected %v", seed, a.Members(), members)
		}
		if got := a.Minus(b).Members(); !reflect.DeepEqual(got, rest) {
			t.Fatalf("seed %d: minus %v, expected %v", seed, got, rest)
		}
		again, err := layers.NewSet(count, a.Ranges()...)
		if err != nil || string(again.AppendKey(nil)) != string(a.AppendKey(nil)) {
			t.Fatalf("seed %d: the set of ranges %v is another set", seed, a.Ranges())
		}
		for k, r := range a.Ranges() {
			if k > 0 && r.First <= a.Ranges()[k-1].End {
				t.Fatalf("seed %d: ranges %v touch", seed, a.Ranges())
			}
		}
	}
}

func randomSet(t *testing.T, random *rand.Rand, count int) (layers.Set, []bool) {
	t.Helper()
	has := make([]bool, count)
	ranges := make([]layers.Range, random.IntN(4))
	for k := range ranges {
		first := random.IntN(count + 1)
		ranges[k] = layers.Range{First: first, End: first + random.IntN(count-first+1)}
		for layer := ranges[k].First; layer < ranges[k].End; layer++ {
			has[layer] = true
		}
	}
	set, err := layers.NewSet(count, ranges...)
	if err != nil {
		t.Fatal(err)
	}
	return set, has
}

func TestARangeOutsideTheModelIsRefused(t *testing.T) {
	for _, r := range []layers.Range{{First: -1, End: 2}, {First: 3, End: 2}, {First: 0, End: 5}} {
		if _, err := layers.NewSet(4, r); err == nil {
			t.Errorf("range %v was accepted in a model of 4 layers", r)
		}
	}
}
