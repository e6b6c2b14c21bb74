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

func randomNetwork(random *rand.Rand, devices int) Network {
	var n Network
	for range devices {
		n.DelaySeconds = append(n.DelaySeconds, make([]float64, devices))
		n.BytesPerSecond = append(n.BytesPerSecond, make([]float64, devices))
	}
	for a := range devices {
		for b := range a {
			delay, speed := float64(random.IntN(9)), float64(1+random.IntN(8))
			n.DelaySeconds[a][b], n.DelaySeconds[b][a] = delay, delay
			n.BytesPerSecond[a][b], n.BytesPerSecond[b][a] = speed, speed
		}
	}
	return n
}

func TestNoOrderOfTheVerticesIsShorterThanTheShortestPath(t *testing.T) {
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 1))
		size := 1 + random.IntN(7)
		weight := randomNetwork(random, size).BytesPerSecond
		order := make([]int, size)
		for i := range order {
			order[i] = i
		}
		best := 1e9
		permutations(order, 0, func(order []int) {
			length := 0.0
			for i := 1; i < size; i++ {
				length += weight[order[i-1]][order[i]]
			}
			best = min(best, length)
		})
		if got := ShortestPath(weight); got != best {
			t.Fatalf("seed %d: %v: got %v, want %v", seed, weight, got, best)
		}
	}
}

func TestNoPairingOfTwoGroupsHasAFasterSlowestLink(t *testing.T) {
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 2))
		size := 1 + random.IntN(4)
		n := randomNetwork(random, 2*size)
		left, right := make([]int, size), make([]int, size)
		for i := range size {
			left[i], right[i] = i, size+i
		}
		best := 1e9
		permutations(right, 0, func(right []int) {
			slowest := 0.0
			for i, b := range right {
				slowest = max(slowest, 2*n.seconds(i, b, 6))
			}
			best = min(best, slowest)
		})
		if got := n.pairingSeconds(left, right, 6); got != best {
			t.Fatalf("seed %d: %+v: got %v, want %v", seed, n, got, best)
		}
	}
}

func TestTheCostOfAPartitionIsItsSlowestGroupAndItsCheapestPath(t *testing.T) {
	// Four devices in a row, one second between neighbours and one more for each step further; bytes cost nothing.
	n := randomNetwork(rand.New(rand.NewPCG(0, 0)), 4)
	for a := range 4 {
		for b := range 4 {
			n.DelaySeconds[a][b], n.BytesPerSecond[a][b] = float64(max(a-b, b-a)), 1
		}
	}
	dataParallel, pipeline := n.Cost([][]int{{0, 1}, {2, 3}}, 0, 0)
	if dataParallel != 2 || pipeline != 4 {
		t.Errorf("neighbours together: got %v and %v, want there and back over 1, and over 2", dataParallel, pipeline)
	}
	dataParallel, pipeline = n.Cost([][]int{{0, 2}, {1, 3}}, 8, 0)
	if dataParallel != 2*(2+8/2) || pipeline != 2 {
		t.Errorf("neighbours apart: got %v and %v, want half of 8 bytes there and back over 2, and over 1", dataParallel, pipeline)
	}
}
