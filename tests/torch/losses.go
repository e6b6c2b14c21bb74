package torch

import (
	"fmt"
	"math"
)

// rows of the table of losses.
const rows = 8

// farthest is how far losses may be apart. Rounding came to 1e-6 over 206 steps.
const farthest = 1e-3

// CompareLosses shows the losses of the disturbed and the undisturbed training at some steps. It fails where they are
// further apart than rounding takes them.
func CompareLosses(healed, undisturbed []float64) error {
	fmt.Printf("\n%8s %12s %12s %12s\n", "step", "disturbed", "undisturbed", "difference")
	for row := 1; row <= rows; row++ {
		i := len(healed)*row/rows - 1
		if i < 0 {
			continue
		}
		fmt.Printf("%8d %12.6f %12.6f %12.1e\n", i+1, healed[i], undisturbed[i], math.Abs(healed[i]-undisturbed[i]))
	}
	greatest, first := 0.0, 0 // the first step whose losses are too far apart
	for i := range healed {
		apart := math.Abs(healed[i] - undisturbed[i])
		if math.IsNaN(healed[i]) { // nobody lived to tell it; the states behind it are compared
			continue
		}
		if greatest = max(greatest, apart); apart > farthest && first == 0 {
			first = i + 1
		}
	}
	fmt.Printf("%d steps of the same samples, none skipped, none trained twice; the greatest difference is %.1e\n",
		len(healed), greatest)
	fmt.Println("(sums of floating-point numbers depend on their order, which changes with the processes that take part)")
	if greatest > farthest {
		return fmt.Errorf("losses are %.1e apart, too far from step %d on: expected at most %.0e", greatest, first, farthest)
	}
	return nil
}
