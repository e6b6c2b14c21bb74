package world

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

// Processes that are killed at a steady rate, each of which another replaces, and beside them a link that is taken away and
// given back again and again, which is a small change: training goes on for a share of the time that no rate of small
// changes takes away, and that is bounded from below by the rate of the failures and by what costs most of them, a host that
// is lost in silence (services/negotiator).
func TestTrainingTimeIsBoundedFromBelowWhateverComesBesideTheFailures(t *testing.T) {
	alone := steady{failures: 40 * time.Second, silent: true, long: 5 * time.Minute}.play(t)
	cost := (1 - alone.share) / alone.rate // seconds that a failure costs, with the join that follows it
	// The mean time between two failures, in what one costs.
	for _, pauses := range []float64{2, 1, 8} {
		for _, small := range []time.Duration{0, 40 * time.Millisecond} {
			mean, renewals := time.Duration(pauses*cost*float64(time.Second)), 0.0
			if small > 0 {
				renewals = protocol.MostRenewals
			}
			got := steady{failures: mean, small: small, long: max(time.Minute, 6*mean)}.play(t)
			bound := math.Exp(-got.rate * cost * (1 + renewals))
			t.Logf("a failure costs %.2f s; %.2f a second, a small change each %v: %.3f of the time, bound %.3f", cost, got.rate, small,
				got.share, bound)
			if got.share < bound || got.rate == 0 {
				t.Fatalf("a failure each %v, a small change each %v: %.2f failures a second, training went on for %.3f of the time, "+
					"at least %.3f is possible", mean, small, got.rate, got.share, bound)
			}
		}
	}
}

// steady is what comes to a cluster for so long, one each so often in the mean; zero: none.
type steady struct {
	failures, small, long time.Duration
	silent                bool // hosts are lost, and nobody is told
}

// trained is how that went.
type trained struct {
	rate  float64 // of failures, a second
	share float64 // of the time that training went on
}

// nodes train at the beginning. The link between the first two comes and goes, and they do not fail.
const nodes = 12

func (s steady) play(t *testing.T) trained {
	t.Helper()
	w := New(Cluster{
		Seed: 6, Nodes: nodes, Layers: 4, Kind: events.DataParallel, SamplesPerNode: 1, LayerSeconds: 0.05, CompareEvery: 1 << 30, Judged: 500,
	}, false)
	const calm = 30 * time.Second
	w.Run(calm)
	before := w.newest
	w.Run(calm)
	usual, from := float64(w.newest-before)/calm.Seconds(), w.newest
	failures := s.strike(t, w)
	w.Run(s.long)
	if len(w.Violations) > 0 {
		t.Error(w.Violations[0])
	}
	return trained{
		rate: float64(*failures) / s.long.Seconds(), share: float64(w.newest-from) / usual / s.long.Seconds(),
	}
}

// strike has all come that is to come, and counts the failures.
func (s steady) strike(t *testing.T, w *World) (failures *int) {
	random, failures, cut := rand.New(rand.NewPCG(1, 1)), new(int), false
	do := func(format string, words ...any) {
		if err := w.Do(fmt.Sprintf(format, words...)); err != nil {
			t.Fatal(err)
		}
	}
	var again func(every time.Duration, what func())
	again = func(every time.Duration, what func()) {
		if every > 0 {
			w.after(time.Duration(random.ExpFloat64()*float64(every)), func() { what(); again(every, what) })
		}
	}
	again(s.failures, func() {
		victim := w.nodes[2+random.IntN(len(w.nodes)-2)]
		for victim.process == nil || victim.process.paused {
			victim = w.nodes[2+random.IntN(len(w.nodes)-2)]
		}
		*failures++
		if s.silent {
			do("cut %s from hub", victim.name)
			do("cut %s from peers", victim.name)
			do("pause %s", victim.name)
		} else {
			do("kill %s", victim.name)
		}
		w.after(2*time.Second, w.AddNode().launcher(w))
	})
	again(s.small, func() {
		if cut = !cut; cut {
			do("disconnect n1 n2")
		} else {
			do("connect n1 n2")
		}
	})
	return failures
}
