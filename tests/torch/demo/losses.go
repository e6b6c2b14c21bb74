package main

import (
	"fmt"
	"math"
)

// rows of the table of losses.
const rows = 8

// printLosses shows what the disturbed and the undisturbed training lost at some steps, and how far they are apart.
func printLosses(healed, undisturbed []float64) {
	fmt.Printf("\n%8s %12s %12s %12s\n", "step", "disturbed", "undisturbed", "difference")
	for row := 1; row <= rows; row++ {
		i := len(healed)*row/rows - 1
		if i < 0 {
			continue
		}
		fmt.Printf("%8d %12.6f %12.6f %12.1e\n", i+1, healed[i], undisturbed[i], math.Abs(healed[i]-undisturbed[i]))
	}
	greatest := 0.0
	for i := range healed {
		greatest = max(greatest, math.Abs(healed[i]-undisturbed[i]))
	}
	fmt.Printf("%d steps of the same samples, none skipped, none trained twice; the greatest difference is %.1e\n",
		len(healed), greatest)
	fmt.Println("(sums of floating-point numbers depend on their order, which changes with the processes that take part)")
}
