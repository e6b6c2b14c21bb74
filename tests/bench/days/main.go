// Command days runs the five machines of Reknit for days of virtual time in which each node fails once a day, and shows
// that nothing grows.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strconv"
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
	often := flag.String("failures", "1", "of a node and day; several, as 1,10,100: training time at each, beside what is promised")
	flag.Parse()
	perDay, err := numbers(*often)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(memoryLimit)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	began, spent := time.Now(), figures.Spent()
	long := time.Duration(*days * float64(day))
	var faults []string
	if len(perDay) > 1 {
		faults = rates(ctx, *nodes, perDay, long, *seed, os.Stdout)
	} else {
		course := play(ctx, *nodes, perDay[0], long, *seed, os.Stderr)
		fmt.Print(course.table())
		faults = slices.Concat(course.unsound(), course.overflowing(), course.growing())
	}
	fmt.Printf("\n%v of the clock and %v of processor time\n", time.Since(began).Round(time.Second),
		(figures.Spent() - spent).Round(time.Second))
	if len(faults) > 0 {
		fmt.Println("\n" + strings.Join(faults, "\n"))
		os.Exit(1)
	}
}

// numbers reads rates of failures.
func numbers(list string) ([]float64, error) {
	var read []float64
	for word := range strings.SplitSeq(list, ",") {
		number, err := strconv.ParseFloat(word, 64)
		if err != nil || number <= 0 {
			return nil, fmt.Errorf("-failures: expected numbers above zero, as 1,10,100, got %q", list)
		}
		read = append(read, number)
	}
	return read, nil
}
