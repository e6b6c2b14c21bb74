// Command simulation runs many seeds of the simulated world. It ends with status 1 where a run broke an invariant, and
// tells the smallest story that it found of the first such run.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/reknit/reknit/tests/simulation/world"
)

func main() {
	first := flag.Uint64("first", 1, "the first `seed`")
	runs := flag.Uint64("runs", 1000, "how many `seeds`")
	verbose := flag.Bool("verbose", false, "tell the story of every run")
	stop := flag.Bool("stop", false, "stop at the first seed that breaks an invariant")
	digest := flag.String("digest", "", "a `file` to write, with a hash of each run's log")
	earlier := flag.String("earlier", "", "the `program` of an earlier build: each run has two builds side by side")
	flag.Parse()
	draw := world.NewScript
	if *earlier != "" {
		draw = func(seed uint64) world.Script { return world.NewScript(seed).Beside(*earlier) }
	}
	debug.SetGCPercent(2400) // runs are short, and all that they need stays below 300 MB
	began := time.Now()
	totals := runAll(draw, *first, *runs, *verbose, *stop)
	fmt.Println(totals.report(time.Since(began)))
	if *digest != "" {
		if err := os.WriteFile(*digest, totals.digest(), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "simulation: -digest:", err)
			os.Exit(2)
		}
	}
	if len(totals.failed) == 0 {
		return
	}
	seed := totals.failed[0]
	if *stop {
		os.Exit(1)
	}
	fmt.Printf("\nseed %d, shrunk. The whole run again: make simulate FIRST=%d RUNS=1 VERBOSE=1\n", seed, seed)
	tellStory(shrink(draw(seed)))
	os.Exit(1)
}

// tellStory prints a script, what came of it, and how.
func tellStory(script world.Script) {
	outcome := script.Play(true)
	fmt.Println(script)
	fmt.Println(strings.Join(outcome.Story, "\n"))
	fmt.Println(outcome)
}
