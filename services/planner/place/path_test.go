package place

import (
	"math/rand/v2"
	"testing"
)

// permutations calls each with every order of values from at on.
func permutations(values []int, at int, each func([]int)) {
	if at == len(values) {
		each(values)
	}
	for i := at; i < len(values); i++ {
		values[at], values[i] = values[i], values[at]
		permutations(values, at+1, each)
		values[at], values[i] = values[i], values[at]
	}
}

func TestNoOrderOfTheVerticesIsShorterThanTheShortestPath(t *testing.T) {
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 1))
		size := 1 + random.IntN(7)
		weight := randomNetwork(random, size).BytesPerSecond
		best := 1e9
		permutations(upTo(size), 0, func(order []int) { best = min(best, pathLength(weight, order)) })
		if got, order := ShortestPath(weight); got != best || pathLength(weight, order) != best {
			t.Fatalf("seed %d: %v: got %v by %v, want %v", seed, weight, got, order, best)
		}
	}
}

func upTo(n int) (numbers []int) {
	for i := range n {
		numbers = append(numbers, i)
	}
	return numbers
}

func pathLength(weight [][]float64, order []int) (length float64) {
	for i := 1; i < len(order); i++ {
		length += weight[order[i-1]][order[i]]
	}
	return length
}

func TestNoPairingOfTwoGroupsHasAFasterSlowestLink(t *testing.T) {
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 2))
		size := 1 + random.IntN(4)
		var links []float64
		for range size * size {
			links = append(links, float64(random.IntN(9)))
		}
		slowestOf := func(partner []int) (slowest float64) {
			for a, b := range partner {
				slowest = max(slowest, links[a*size+b])
			}
			return slowest
		}
		best := 1e9
		permutations(upTo(size), 0, func(partner []int) { best = min(best, slowestOf(partner)) })
		if got, partner := Pairing(links, size); got != best || slowestOf(partner) != best {
			t.Fatalf("seed %d: %v: got %v by %v, want %v", seed, links, got, partner, best)
		}
	}
}
