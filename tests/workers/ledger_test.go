package workers

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/shared/ledger"
	"github.com/reknit/reknit/tests/invariants"
)

// trained is what a worker says before others can have its sums of a step: the step may be made without it from then on.
type trained struct {
	Generation uint64
	Step       uint64
	Samples    [][2]uint64
}

// book is what all workers said that they trained, and the loss of each step.
type book struct {
	mutex   sync.Mutex
	entries []ledger.Entry
	losses  map[int]float64 // by completed steps
}

func (b *book) note(line said) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if line.Loss != nil {
		b.losses[line.Done] = *line.Loss
	}
	if line.Trained == nil {
		return
	}
	for _, samples := range line.Trained.Samples {
		b.entries = append(b.entries, ledger.Entry{
			Generation: line.Trained.Generation, Step: line.Trained.Step, First: samples[0], End: samples[1],
		})
	}
}

var (
	runs  = flag.Int("runs", 1, "clusters with churn whose ledger is checked")
	first = flag.Uint64("first", 1, "seed of the first")
)

func TestEverySampleIsTrainedOnceWhateverTheChurn(t *testing.T) {
	t.Parallel()
	for seed := *first; seed < *first+uint64(*runs); seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			c := newCluster(t, 4, 200)
			stay, alsoStays := c.start("n1"), c.start("n2") // so that there is always who holds the state
			did := c.churn(rand.New(rand.NewPCG(seed, 0)))
			c.expectTheEndOfTrainingAlone(stay, alsoStays)
			plans := c.plans()
			if err := c.ledger.check(plans, uint64(c.steps)); err != nil {
				t.Fatalf("%v: %v", did, err)
			}
			t.Logf("0 of %d samples skipped, 0 doubled; %d plans; %v", 12*c.steps, len(plans), did)
		})
	}
}

func (b *book) check(plans []ledger.Plan, steps uint64) error {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return ledger.Check(plans, b.entries, steps)
}

// checkAfter checks the book of a cluster together with that of the one in whose place it began.
func (b *book) checkAfter(gone *book, first, second []ledger.Plan, steps uint64) error {
	plans, entries := slices.Clone(first), slices.Clone(gone.entries)
	for _, plan := range second {
		plan.Generation += uint64(len(first))
		plans = append(plans, plan)
	}
	for _, entry := range b.entries {
		entry.Generation += uint64(len(first))
		entries = append(entries, entry)
	}
	return ledger.Check(plans, entries, steps)
}

// departures are how a worker goes, by name: the signal, and to its agent or to its script.
var departures = map[string]struct {
	signal  syscall.Signal
	toAgent bool
}{
	"trainer killed": {syscall.SIGKILL, false},
	"agent killed":   {syscall.SIGKILL, true},
	"frozen":         {syscall.SIGSTOP, false},
	"asked to leave": {syscall.SIGTERM, true},
}

// depart has a worker go. On a busy machine it may be gone already: given up, or done with the training.
func (w *worker) depart(name string) (did string) {
	w.Helper()
	departure, pid := departures[name], w.pid
	if departure.toAgent {
		pid = w.agent.Process.Pid
	}
	switch err := syscall.Kill(pid, departure.signal); {
	case errors.Is(err, syscall.ESRCH):
		return "gone before it was " + name
	case err != nil:
		w.Fatal(err)
	}
	return name
}

// churn has workers come and go, and returns what happened.
func (c *cluster) churn(random *rand.Rand) (did []string) {
	c.Helper()
	next := 3
	join := func() *worker {
		node := "n" + itoa(next)
		next++
		return c.start(node, "--restarts", "0")
	}
	there := []*worker{join(), join()}
	there[0].untilWorld(4)
	for range 8 {
		time.Sleep(time.Duration(100+random.IntN(500)) * time.Millisecond)
		if len(there) == 0 || len(there) < 3 && random.IntN(2) == 0 {
			there = append(there, join())
			did = append(did, "joined")
			continue
		}
		names := slices.Sorted(maps.Keys(departures))
		name, gone := names[random.IntN(len(names))], random.IntN(len(there))
		did = append(did, there[gone].depart(name))
		there = slices.Delete(there, gone, gone+1)
	}
	return did
}

// plans returns what the ledger knows of the plans that were committed, in their order.
func (c *cluster) plans() (plans []ledger.Plan) {
	c.Helper()
	b, err := bus.Connect(c.Context(), bus.Config{URL: c.url, Name: "test", Cluster: "workers"})
	if err != nil {
		c.Fatal(err)
	}
	defer b.Close()
	for generation := 1; ; generation++ {
		event, found, err := b.LastEvent(c.Context(), events.PlanStream, events.PlanSubject("workers", itoa(generation)))
		if err != nil {
			c.Fatal(err)
		}
		if !found {
			return plans
		}
		plan, err := events.Open[events.Plan](event)
		if err != nil {
			c.Fatal(err)
		}
		plans = append(plans, ledger.Plan{
			Generation: plan.Generation, ResumeStep: plan.ResumeStep, Consumed: plan.Data.ConsumedSamples,
			GlobalBatch: uint64(plan.Data.GlobalBatch), Skipped: invariants.SkippedBy(&plan),
		})
	}
}
