// Command days runs the five machines of Reknit for days of virtual time in which each node fails once a day, and shows
// that nothing grows.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/reknit/reknit/tests/bench/figures"
)

// The log of a run is kept whole, to be judged: collecting garbage often would walk through it often.
const (
	gcPercent   = 400
	memoryLimit = 8 << 30
)

func main() {
	nodes := flag.Int("nodes", 100, "that train")
	days := flag.Float64("days", 10, "of virtual time")
	seed := flag.Uint64("seed", 1, "of all that happens")
	flag.Parse()
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(memoryLimit)
	began, spent := time.Now(), figures.Spent()
	course := play(*nodes, time.Duration(*days*float64(day)), *seed, os.Stderr)
	fmt.Print(course.table())
	fmt.Printf("\n%v of the clock and %v of processor time\n", time.Since(began).Round(time.Second),
		(figures.Spent() - spent).Round(time.Second))
	if faults := slices.Concat(course.unsound(), course.overflowing(), course.growing()); len(faults) > 0 {
		fmt.Println("\n" + strings.Join(faults, "\n"))
		os.Exit(1)
	}
}
