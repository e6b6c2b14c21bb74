package main

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/reknit/reknit/tests/simulation/world"
)

// totals is what so many runs covered.
type totals struct {
	runs    uint64
	virtual time.Duration
	changes uint64
	steps   uint64
	held    int
	faults  map[string]int // by verb
	failed  []uint64       // seeds
	traces  map[uint64]uint64
}

// mostTold are the failures that are told in a line each.
const mostTold = 20

// runAll runs seeds on all processors, each twice: both must do the same. It may stop at the first that fails.
func runAll(draw func(seed uint64) world.Script, first, runs uint64, verbose, stop bool) *totals {
	t := &totals{faults: map[string]int{}, traces: map[uint64]uint64{}}
	seeds := make(chan uint64)
	var mutex sync.Mutex
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for seed := range seeds {
				script := draw(seed)
				outcome := playOnceOrTwice(script, stop)
				mutex.Lock()
				t.add(seed, script, outcome)
				if verbose {
					tellStory(script)
				}
				mutex.Unlock()
			}
		})
	}
	failed := func() bool {
		mutex.Lock()
		defer mutex.Unlock()
		return len(t.failed) > 0
	}
	for seed := first; seed < first+runs && !(stop && failed()); seed++ {
		seeds <- seed
		t.runs++
	}
	close(seeds)
	workers.Wait()
	slices.Sort(t.failed)
	return t
}

// playOnceOrTwice saves the second run where the first failure is looked for.
func playOnceOrTwice(script world.Script, once bool) world.Outcome {
	if once {
		return script.Play(false)
	}
	return playTwice(script)
}

func playTwice(script world.Script) world.Outcome {
	outcome := script.Play(false)
	if again := script.Play(false); again.Trace != outcome.Trace {
		outcome.Violations = append(outcome.Violations,
			"a second run of the seed did otherwise: something is not deterministic")
	}
	return outcome
}

func (t *totals) add(seed uint64, script world.Script, outcome world.Outcome) {
	t.traces[seed] = outcome.Trace
	t.virtual += outcome.Virtual
	t.changes += outcome.Changes
	t.steps += outcome.Steps
	if outcome.Held {
		t.held++
	}
	for _, fault := range script.Faults {
		t.faults[fault.Verb()]++
	}
	if len(outcome.Violations) == 0 {
		return
	}
	t.failed = append(t.failed, seed)
	if len(t.failed) <= mostTold {
		fmt.Printf("seed %d: %s\n", seed, outcome.Violations[0])
	}
}

func (t *totals) report(took time.Duration) string {
	var faults []string
	for _, verb := range slices.Sorted(maps.Keys(t.faults)) {
		faults = append(faults, fmt.Sprintf("%s %d", verb, t.faults[verb]))
	}
	return fmt.Sprintf("%d runs, each twice, in %v (%v a run): %v of virtual time, %d steps, %d committed plans, %d runs rightly held\n"+
		"faults: %s\n%d runs broke an invariant",
		t.runs, took.Round(time.Millisecond), (took / time.Duration(max(t.runs, 1))).Round(time.Microsecond), t.virtual.Round(time.Second),
		t.steps, t.changes, t.held, strings.Join(faults, ", "), len(t.failed))
}

// digest returns a line for each seed, in their order: a hash of the whole log of its run and of all that was told of it, in hex. Code that
// only moves keeps every line.
func (t *totals) digest() []byte {
	var lines []byte
	for _, seed := range slices.Sorted(maps.Keys(t.traces)) {
		lines = fmt.Appendf(lines, "%d %016x\n", seed, t.traces[seed])
	}
	return lines
}
