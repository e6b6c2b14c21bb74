package search

import (
	"errors"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/reknit/reknit/services/planner/estimate"
)

// withShares gives a problem one to three shares, the narrower the plan the larger the layers.
func withShares(random *rand.Rand, p Problem) Problem {
	layers, pipelines := p.Layers, 1+random.Intn(6)
	for ; pipelines > 0 && len(p.Shares) < 3; pipelines -= 1 + random.Intn(3) {
		layers = slices.Clone(layers)
		for i := range layers {
			layers[i].StaticBytes += int64(random.Intn(12))
		}
		p.Shares = append([]Share{{pipelines, layers}}, p.Shares...)
	}
	return p
}

// only is the problem of plans of so many pipelines, without shares.
func (p Problem) only(pipelines int) Problem {
	for _, share := range slices.Backward(p.Shares) {
		if pipelines <= share.Pipelines {
			p.Layers = share.Layers
		}
	}
	p.Shares, p.MinReplicas, p.DataParallel = nil, 0, Limits{pipelines, pipelines}
	return p
}

// onlyBest is the twin: each number of pipelines is searched by itself, those with enough replicas first.
func onlyBest(p Problem) float64 {
	best := [2]float64{never, never} // with enough replicas, without
	widest := p.Nodes
	if p.DataParallel.Most > 0 {
		widest = min(widest, p.DataParallel.Most)
	}
	for pipelines := max(1, p.DataParallel.Least); pipelines <= widest; pipelines++ {
		few := 0
		if pipelines < p.MinReplicas {
			few = 1
		}
		if found, err := Best(p.only(pipelines)); err == nil {
			best[few] = min(best[few], found.StepSeconds)
		}
	}
	if best[0] < never {
		return best[0]
	}
	return best[1]
}

func TestNoPlanOfAnyShareIsFasterThanTheAnswer(t *testing.T) {
	const seed = 9
	random := rand.New(rand.NewSource(seed))
	feasible, binding := 0, 0
	for round := range 5000 {
		p := withShares(random, randomProblem(random))
		want := onlyBest(p)
		_, isFeasible, err := best(p, want, func(plan Plan) Problem { return p.only(len(plan.Pipelines)) })
		if err != nil {
			t.Fatalf("seed %d round %d: %+v: %v", seed, round, p, err)
		}
		if !isFeasible {
			continue
		}
		feasible++
		p.Shares = nil
		if whole, _ := Best(p); whole.StepSeconds != want {
			binding++
		}
	}
	if feasible < 2000 || binding < 200 {
		t.Fatalf("seed %d: %d problems were feasible, and shares mattered in %d", seed, feasible, binding)
	}
}

func TestALowerBoundHoldsForAllSharesEvenWhereTheSearchGivesUp(t *testing.T) {
	const seed = 10
	random := rand.New(rand.NewSource(seed))
	gaveUp := 0
	for round := range 3000 {
		p, err := withShares(random, randomProblem(random)).normalised()
		if err != nil {
			continue
		}
		p.MinReplicas = 1
		s, best := newSearcher(p), never
		for pipelines := p.DataParallel.Least; pipelines <= p.DataParallel.Most; pipelines++ {
			s.at(pipelines).effort = 1
			best = min(best, slowBest(p.only(pipelines)))
		}
		got, err := s.best(Weighed)
		if best == never && err != nil {
			continue
		}
		if err != nil || got.LowerBoundSeconds > best || got.StepSeconds < best {
			t.Fatalf("seed %d round %d: %+v: %v, bound %v, best %v, found %v", seed, round, p, err,
				got.LowerBoundSeconds, best, got.StepSeconds)
		}
		if got.LowerBoundSeconds < got.StepSeconds {
			gaveUp++
		}
	}
	if gaveUp < 50 {
		t.Fatalf("seed %d: only %d searches gave up", seed, gaveUp)
	}
}

// looked is how many numbers of micro-batches were looked into, of all lengths.
func (s *searcher) looked() int {
	count := 0
	for _, cells := range s.cells {
		count += len(cells)
	}
	for _, share := range s.shares {
		if share != nil {
			count += share.looked()
		}
	}
	return count
}

// Each number of pipelines keeps another share of the optimizer state.
func TestSharesCostTheSearchLittle(t *testing.T) {
	p := Problem{Nodes: 32, NodeMemoryBytes: 80e9, MicroBatches: 512, TransferSeconds: 0.065}
	sized := func(bytes int64) []estimate.Layer {
		return slices.Repeat([]estimate.Layer{{
			ForwardSeconds: 0.01, BackwardSeconds: 0.02, StaticBytes: bytes, ActivationBytes: 200e6,
		}}, 32)
	}
	for pipelines := int64(2); pipelines < 32; pipelines++ {
		p.Shares = append(p.Shares, Share{int(pipelines), sized(800e6 + 4800e6/pipelines)})
	}
	p.Layers = sized(800e6 + 4800e6/32)
	looked := func(p Problem) int {
		p, _ = p.normalised()
		s := newSearcher(p)
		if _, err := s.best(Weighed); err != nil {
			t.Fatal(err)
		}
		return s.looked()
	}
	with, apart := looked(p), 0
	for pipelines := 2; pipelines <= 32; pipelines++ {
		apart += looked(p.only(pipelines))
	}
	p.Shares = nil
	without := looked(p)
	if with > 2*without || apart < 3*with {
		t.Errorf("%d looked into without shares, %d with, %d each for itself", without, with, apart)
	}
}

func TestABadShareIsNamed(t *testing.T) {
	layers := []estimate.Layer{{StaticBytes: 1}}
	for word, shares := range map[string][]Share{
		"shares[0].pipelines is 0, expected more than 0":  {{0, layers}},
		"shares[1].pipelines is 3, expected more than 3":  {{3, layers}, {3, layers}},
		"shares[0].layers is 2 of them, expected 1":       {{3, slices.Repeat(layers, 2)}},
		"shares[1].layers[0] is {ForwardSeconds:0 Backwa": {{3, layers}, {4, []estimate.Layer{{StaticBytes: -1}}}},
	} {
		_, err := Best(Problem{Nodes: 1, Layers: layers, MicroBatches: 1, Shares: shares})
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("got %v, want an error about %s", err, word)
		}
	}
}

// What it says of memory is of the widest plans, which take least.
func TestASharedProblemThatIsImpossibleNamesTheLimit(t *testing.T) {
	p := Problem{Nodes: 4, NodeMemoryBytes: 9, Layers: []estimate.Layer{{StaticBytes: 10}}, MicroBatches: 4,
		Shares: []Share{{2, []estimate.Layer{{StaticBytes: 12}}}}}
	if _, err := Best(p); !errors.Is(err, ErrInfeasible) ||
		!strings.Contains(err.Error(), "9 B of memory a node are too little for any pipeline of 1 to 1 stages: the longest needs") {
		t.Errorf("got %v", err)
	}
	p.NodeMemoryBytes = 11
	if found, err := Best(p); err != nil || len(found.Pipelines) < 3 {
		t.Errorf("only three pipelines or four fit: got %+v, %v", found.Plan, err)
	}
}
