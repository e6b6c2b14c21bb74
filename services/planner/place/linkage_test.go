package place

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// The twin works out anew before each step how far apart all groups are.
func TestAlikeJoinsTheTwoGroupsFirstWhoseNodesAreNearestInTheMean(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		n, within := 1+random.IntN(9), random.Float64()
		apart := make([][]float64, n)
		for a := range n {
			apart[a] = make([]float64, n)
			for b := range a {
				if apart[a][b] = random.Float64(); random.IntN(20) == 0 {
					apart[a][b] = math.Inf(1)
				}
				apart[b][a] = apart[a][b]
			}
		}
		want := joinedOneByOne(apart, within)
		got := Alike(apart, within)
		slices.SortFunc(got, slices.Compare[[]int])
		if !slices.EqualFunc(got, want, slices.Equal[[]int]) {
			t.Fatalf("seed %d: %v, want %v", seed, got, want)
		}
	}
}

func joinedOneByOne(apart [][]float64, within float64) (groups [][]int) {
	for node := range apart {
		groups = append(groups, []int{node})
	}
	for {
		least, one, other := within, -1, -1
		for i, a := range groups {
			for j, b := range groups[:i] {
				if mean := meanApart(apart, a, b); mean < least {
					least, one, other = mean, j, i
				}
			}
		}
		if one < 0 {
			slices.SortFunc(groups, slices.Compare[[]int])
			return groups
		}
		groups[one] = slices.Sorted(slices.Values(slices.Concat(groups[one], groups[other])))
		groups = slices.Delete(groups, other, other+1)
	}
}

func meanApart(apart [][]float64, some, others []int) float64 {
	sum := 0.0
	for _, one := range some {
		for _, other := range others {
			sum += apart[one][other]
		}
	}
	return sum / float64(len(some)*len(others))
}
