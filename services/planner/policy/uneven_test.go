package policy

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/reknit/reknit/services/planner/estimate"
)

// Two large nodes and two that hold a quarter of the model: only pipelines of one each keep two holders of every layer.
func TestLargeAndSmallNodesSharePipelinesSoThatEveryLayerHasTwoHolders(t *testing.T) {
	s := usual(4)
	s.MemoryBytes = []int64{450, 450, 220, 220}
	taken := choose(t, s)[0]
	if taken.Replicas != 2 || len(taken.Pipelines) != 2 {
		t.Fatalf("%s with %d replicas", taken.Shape(), taken.Replicas)
	}
	for _, pipeline := range taken.Pipelines {
		if large := pipeline.Stages[0]; large.Node != "n1" && large.Node != "n2" || large.Layers.Len() != 4 {
			t.Fatalf("%+v", pipeline)
		}
	}
}

func TestAFastNodeTrainsMoreLayers(t *testing.T) {
	s := usual(2)
	s.Speed, s.DataParallel.Most, s.PipelineLength.Least = []float64{2, 1}, 1, 2
	if taken := choose(t, s)[0]; taken.Pipelines[0].Stages[0].Layers.Len() != 4 ||
		taken.Pipelines[0].Stages[0].Node != "n1" {
		t.Fatalf("%+v", taken.Pipelines)
	}
}

// The twin tries every split.
func TestAnUnevenSplitIsTheBestOfAll(t *testing.T) {
	compared := 0
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 11))
		s := randomSituation(random)
		nodes := upTo(min(len(s.Nodes), len(s.Layers), 4))
		best := s.slowSplit(nodes, 0)
		splits, fits := s.newCuts().best(nodes)
		if fits != !math.IsInf(best, 1) {
			t.Fatalf("seed %d: fits %t, the best of all takes %v s", seed, fits, best)
		}
		if !fits {
			continue
		}
		compared++
		slowest := 0.0
		for st, layers := range splits {
			slowest = max(slowest, s.stageSeconds(nodes[st], layers))
		}
		if slowest > best*(1+1e-12) {
			t.Fatalf("seed %d: %v takes %v s, the best of all %v s", seed, splits, slowest, best)
		}
	}
	if compared < 50 {
		t.Fatalf("only %d splits fit", compared)
	}
}

func (s Situation) stageSeconds(node int, layers estimate.Range) float64 {
	seconds := 0.0
	for _, layer := range s.Layers[layers.First:layers.End] {
		seconds += (layer.ForwardSeconds + layer.BackwardSeconds) / s.speed(node)
	}
	return seconds
}

// slowSplit is the time of the slowest stage of the best split, from the layer first on.
func (s Situation) slowSplit(nodes []int, first int, before ...estimate.Range) float64 {
	if len(before) == len(nodes) {
		if first < len(s.Layers) {
			return math.Inf(1)
		}
		slowest := 0.0
		for st, peak := range estimate.PeakBytes(s.Layers, before, s.MicroBatches) {
			if peak > s.MemoryBytes[nodes[st]] {
				return math.Inf(1)
			}
			slowest = max(slowest, s.stageSeconds(nodes[st], before[st]))
		}
		return slowest
	}
	best := math.Inf(1)
	for end := first + 1; end <= len(s.Layers); end++ {
		best = min(best,
			s.slowSplit(nodes, end,
				append(before[:len(before):len(before)], estimate.Range{First: first, End: end})...))
	}
	return best
}
