package main

import (
	"cmp"
	"slices"

	"github.com/reknit/reknit/tests/links"
)

// boundSeconds is the least time in which so many bytes come over the links when they are divided at will: the level up
// to which the links fill, each from a round trip on, in which
// it is asked and the first byte comes, less its burst. O(n log n).
func boundSeconds(bytes float64, neighbours []links.Shape) float64 {
	nearest := slices.SortedFunc(slices.Values(neighbours),
		func(a, b links.Shape) int { return cmp.Compare(a.Delay, b.Delay) })
	level, rate := 0.0, 0.0
	for i, shape := range nearest {
		start := (2*shape.Delay - links.Burst).Seconds()
		if i > 0 && start >= level {
			break
		}
		rate += shape.BytesPerSecond()
		bytes += start * shape.BytesPerSecond()
		level = bytes / rate
	}
	return level
}

// sumMegabits is the sum of the links' rates.
func sumMegabits(neighbours []links.Shape) float64 {
	sum := 0.0
	for _, shape := range neighbours {
		sum += shape.MegabitsPerSecond
	}
	return sum
}
