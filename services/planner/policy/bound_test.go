package policy

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/reknit/reknit/services/planner/estimate"
)

// The twin tries every plan of a few nodes: who is in which pipeline and in what order, every split and every share of
// the batch.
func TestNoPlanOfUnequalNodesIsFasterThanTheBound(t *testing.T) {
	compared, tight := 0, 0
	for seed := range uint64(150) {
		s := few(rand.New(rand.NewPCG(seed, 31)))
		found, err := Choose(s)
		if err != nil || !s.unequal() {
			continue
		}
		best, replicas := s.slowFastest(), min(found[0].Replicas, s.MinReplicas)
		compared++
		for _, candidate := range found {
			if least := best[min(candidate.Replicas, s.MinReplicas)]; candidate.LowerBoundSeconds > least {
				t.Fatalf("seed %d: %+v: a bound of %v s, and a plan of %v s with %d replicas", seed, s,
					candidate.LowerBoundSeconds, least, candidate.Replicas)
			}
		}
		if found[0].LowerBoundSeconds > 0.8*best[replicas] {
			tight++
		}
	}
	if compared < 70 || tight < compared/2 {
		t.Fatalf("of %d bounds %d are within a fifth of the best plan", compared, tight)
	}
}

func few(random *rand.Rand) Situation {
	s := usual(2 + random.IntN(3))
	s.Layers, s.StateBytes, s.GradientBytes = nil, nil, nil
	for range 2 + random.IntN(3) {
		s.Layers = append(s.Layers, estimate.Layer{
			ForwardSeconds: float64(1 + random.IntN(9)), BackwardSeconds: float64(1 + random.IntN(20)),
			StaticBytes: int64(random.IntN(20)), ActivationBytes: int64(random.IntN(4)),
		})
		s.StateBytes, s.GradientBytes = append(s.StateBytes, 1), append(s.GradientBytes, random.Int64N(60e9))
	}
	for i := range s.Nodes {
		s.MemoryBytes[i] = 30 + random.Int64N(60)
		s.Speed = append(s.Speed, 1+float64(random.IntN(5))/4)
	}
	s.MicroBatches = 1 + random.IntN(5)
	s.GlobalBatch, s.MinReplicas = s.MicroBatches, 1+random.IntN(2)
	if random.IntN(2) == 0 {
		s.Network.ActivationBytes, s.Network.Links = 1e6, s.randomLinks(random)
	}
	return s
}

// slowFastest is the fastest step of any plan by the replicas that it has at least.
func (s Situation) slowFastest() map[int]float64 {
	best := map[int]float64{1: math.Inf(1), 2: math.Inf(1)}
	w := s.wires()
	var plan []Pipeline
	var fill func(used []bool, left int)
	each := func(nodes []int, done func([]Stage)) {
		var cut func(stages []Stage, first int)
		cut = func(stages []Stage, first int) {
			if len(stages) == len(nodes) {
				if first == len(s.Layers) {
					done(stages)
				}
				return
			}
			for end := first + 1; end <= len(s.Layers); end++ {
				cut(append(slices.Clone(stages), Stage{s.Nodes[nodes[len(stages)]], estimate.Range{First: first, End: end}}), end)
			}
		}
		cut(nil, 0)
	}
	fill = func(used []bool, left int) {
		if left == 0 {
			if s.overfills(plan) {
				return
			}
			seconds := s.stepSeconds(w, plan)
			for replicas := 1; replicas <= min(2, len(plan)); replicas++ {
				best[replicas] = min(best[replicas], seconds)
			}
			return
		}
		var order func(nodes []int)
		order = func(nodes []int) {
			if len(nodes) > 0 && len(nodes) <= len(s.Layers) {
				each(nodes, func(stages []Stage) {
					for batches := 1; batches <= left; batches++ {
						plan = append(plan, Pipeline{MicroBatches: batches, Stages: stages})
						fill(used, left-batches)
						plan = plan[:len(plan)-1]
					}
				})
			}
			for node := range s.Nodes {
				if !used[node] {
					used[node] = true
					order(append(slices.Clone(nodes), node))
					used[node] = false
				}
			}
		}
		order(nil)
	}
	fill(make([]bool, len(s.Nodes)), s.MicroBatches)
	return best
}

func (s Situation) overfills(plan []Pipeline) bool {
	for p, member := range members(plan) {
		for st, peak := range s.peakBytes(member.Stages, member.MicroBatches) {
			if peak > s.MemoryBytes[slices.Index(s.Nodes, plan[p].Stages[st].Node)] {
				return true
			}
		}
	}
	return false
}
