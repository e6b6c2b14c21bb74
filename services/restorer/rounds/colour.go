package rounds

import (
	"fmt"
	"slices"
)

// Colouring puts items into rounds so that no device has two items in one round.
type Colouring struct {
	RoundOf []int // per item, from 0
	Rounds  int
	Cost    int64 // of FewestRounds the rounds, of ShortestRounds the sum of the largest weights of the rounds
	AtLeast int64 // no colouring costs less; equal to Cost when the colouring is proved optimal
}

// FewestRounds colours items, of which each device has some, with few rounds. Where every device has a run of
// neighbouring items, as every node has in a pipeline of contiguous stages, item x goes to round x mod w, w being the most
// items on one device: a device cannot do with fewer, so that is optimal, in time linear in the input.
//
// Otherwise it is graph colouring: the DSATUR heuristic (Brélaz 1979) goes first, and branch and bound goes on until the
// result is proved optimal, by a clique of as many items or by trying all, or the effort is used up (0.1 s).
func FewestRounds(items int, devices [][]int) (Colouring, error) {
	weights := make([]int64, items)
	for item := range weights {
		weights[item] = 1
	}
	if err := check(weights, devices); err != nil {
		return Colouring{}, err
	}
	if !contiguous(devices) {
		return colour(weights, devices, effort), nil
	}
	most := min(1, items)
	for _, device := range devices {
		most = max(most, len(device))
	}
	result := Colouring{RoundOf: make([]int, items), Rounds: most, Cost: int64(most), AtLeast: int64(most)}
	for item := range items {
		result.RoundOf[item] = item % most
	}
	return result, nil
}

// ShortestRounds colours items so that rounds in which each waits for its heaviest item take as little as possible:
// the least sum of round maxima. That is hard even on contiguous items, so it is proved optimal only for small instances
// (a dozen items); effort as in FewestRounds.
func ShortestRounds(weights []int64, devices [][]int) (Colouring, error) {
	if err := check(weights, devices); err != nil {
		return Colouring{}, err
	}
	return colour(weights, devices, effort), nil
}

// check wants the items of each device ascending, which also rules out one item twice.
func check(weights []int64, devices [][]int) error {
	for item, weight := range weights {
		if weight < 0 {
			return fmt.Errorf("weights[%d] is %d, expected at least 0", item, weight)
		}
	}
	for device, items := range devices {
		for k, item := range items {
			if item < 0 || item >= len(weights) || k > 0 && item <= items[k-1] {
				return fmt.Errorf("devices[%d] has items %v, expected them ascending from 0 to %d", device, items, len(weights)-1)
			}
		}
	}
	return nil
}

// contiguous reports whether the items of every device, ascending, have no gap.
func contiguous(devices [][]int) bool {
	return !slices.ContainsFunc(devices, func(items []int) bool {
		return len(items) > 0 && items[len(items)-1]-items[0] != len(items)-1
	})
}

// heaviestDevice is a bound for every schedule: a device needs the sum of its weights.
func heaviestDevice(weights []int64, devices [][]int) int64 {
	heaviest := int64(0)
	for _, items := range devices {
		sum := int64(0)
		for _, item := range items {
			sum += weights[item]
		}
		heaviest = max(heaviest, sum)
	}
	return heaviest
}
