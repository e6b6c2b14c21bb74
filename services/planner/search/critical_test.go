package search

import (
	"math/rand"
	"testing"

	"github.com/reknit/reknit/services/planner/estimate"
)

// cutProblem is one whose layers are uneven, and which may have so little memory that not every split fits.
func cutProblem(random *rand.Rand) Problem {
	p := Problem{Splits: Family(random.Intn(2)), TransferSeconds: float64(random.Intn(3) * random.Intn(20)), NodeMemoryBytes: 1 << 40}
	for range 3 + random.Intn(7) {
		p.Layers = append(p.Layers, estimate.Layer{
			ForwardSeconds: float64(random.Intn(20)), BackwardSeconds: float64(1 + random.Intn(40)),
			StaticBytes: int64(random.Intn(20)), ActivationBytes: int64(random.Intn(5)),
		})
	}
	if random.Intn(2) == 0 {
		p.NodeMemoryBytes = int64(20 + random.Intn(120))
	}
	return p
}

// What one search has learnt excludes splits in all that follow: for other limits, and for nodes with other memory.
func TestCutsExcludeNoSplitThatIsWithinTheLimit(t *testing.T) {
	const seed, effort = 12, 1 << 30
	random := rand.New(rand.NewSource(seed))
	known := 0
	for round := range 1500 {
		p := cutProblem(random)
		p.MicroBatches = 1 + random.Intn(12)
		learnt, other := new(paths), p
		other.NodeMemoryBytes = int64(20 + random.Intn(200))
		for _, nodes := range []Problem{p, other, p, other} {
			stages := 2 + random.Intn(len(p.Layers)-1)
			m := newModel(nodes, noLimit, learnt, new(int))
			want := slowPipeline(nodes, stages, p.MicroBatches, noLimit)
			for range 6 {
				limit := max(want*(0.9+0.2*random.Float64()), 1)
				if want == never {
					limit = 1e6
				} else if random.Intn(2) == 0 {
					limit = want
				}
				_, seconds, answer := m.split(stages, p.MicroBatches, limit, effort)
				if (answer == found) != (want <= limit) || answer == found && (seconds > limit || seconds < want) {
					t.Fatalf("seed %d round %d: %+v in %d stages, the fastest takes %v: within %v the search says %v, %v",
						seed, round, nodes, stages, want, limit, answer, seconds)
				}
			}
		}
		for _, paths := range learnt.known {
			known += len(paths)
		}
	}
	if known < 700 {
		t.Errorf("seed %d: %d paths were learnt, too few to test anything", seed, known)
	}
}

func TestKnownPathsAreBoundedAndTheNewestAreKept(t *testing.T) {
	known := new(paths)
	path := func(number int) estimate.Path { return estimate.Path{Transfers: float64(number)} }
	for number := range 100 {
		known.keep([2]int{8, 3}, path(number), 4)
	}
	if kept := known.known[[2]int{8, 3}]; len(kept) != 4 || kept[3].Transfers != 99 || known.stages != 4*8 {
		t.Errorf("%d paths of %d stages are kept: %+v", len(kept), known.stages, kept)
	}
	for number := range 300 {
		known.keep([2]int{mostStages / 200, number}, path(number), 4)
	}
	if known.stages > mostStages || len(known.known) > 200 {
		t.Errorf("paths of %d stages are kept, of %d at most", known.stages, mostStages)
	}
}

func TestWhereTooManyPathsAreLookedAtTheOldestMakesRoom(t *testing.T) {
	looked := new(paths)
	for number := range 5 {
		looked.activate(estimate.Path{Transfers: float64(number)}, 3)
	}
	for i, c := range looked.active {
		if c.Transfers != float64(2+i) || len(looked.active) != 3 || len(looked.tables) != 3 {
			t.Errorf("%d are looked at, as the %dth that of %v", len(looked.active), i, c.Transfers)
		}
	}
}
