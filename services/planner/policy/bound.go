package policy

import (
	"slices"

	"github.com/reknit/reknit/services/planner/estimate"
	"github.com/reknit/reknit/services/planner/search"
)

// lowerBound holds for unequal nodes and links, and plans of at least so many pipelines: as if all were like the best of
// them, and the work was shared by speed. It is zero where there is no plan even then.
func (s Situation) lowerBound(pipelines int) float64 {
	best := s.problem(len(s.Nodes), slices.Max(s.MemoryBytes), 1)
	best.DataParallel.Least = max(best.DataParallel.Least, pipelines)
	if s.Speed != nil {
		best.Layers = faster(best.Layers, slices.Max(s.Speed))
		for i := range best.Shares {
			best.Shares[i].Layers = faster(best.Shares[i].Layers, slices.Max(s.Speed))
		}
	}
	for _, link := range s.Network.Links {
		best.TransferSeconds = min(best.TransferSeconds, s.Network.transferSeconds(link))
	}
	best.AllReduce = s.allReduce(s.bestLink())
	found, err := search.Fastest(best)
	if err != nil {
		return 0
	}
	return found.LowerBoundSeconds * (1 - 1e-12) // sums may round up
}

// fastest is, for each number of nodes from zero on, the sum of so many of the highest speeds.
func (s Situation) fastest() []float64 {
	sums := make([]float64, 1, len(s.Nodes)+1)
	for i := range s.Nodes {
		sums = append(sums, float64(i+1))
	}
	for i, speed := range slices.Backward(slices.Sorted(slices.Values(s.Speed))) {
		used := len(s.Speed) - i
		sums[used] = sums[used-1] + speed
	}
	return sums
}

// bestLink has the most bandwidth and the least latency of any link.
func (s Situation) bestLink() Link {
	best := s.Network.usual()
	for _, link := range s.Network.Links {
		best.BytesPerSecond = max(best.BytesPerSecond, link.BytesPerSecond)
		best.LatencySeconds = min(best.LatencySeconds, link.LatencySeconds)
	}
	return best
}

// leastTrainSeconds is all work shared by the fastest nodes, as many as so many pipelines can be.
func (s Situation) leastTrainSeconds(pipelines int, fastest []float64) float64 {
	longest := len(s.Layers)
	if s.PipelineLength.Most > 0 {
		longest = min(longest, s.PipelineLength.Most)
	}
	work := 0.0
	for _, layer := range s.Layers {
		work += layer.ForwardSeconds + layer.BackwardSeconds
	}
	return work * float64(s.MicroBatches) / fastest[min(len(s.Nodes), pipelines*longest)] * (1 - 1e-12)
}

// faster is layers on nodes so many times as fast.
func faster(layers []estimate.Layer, speed float64) []estimate.Layer {
	layers = slices.Clone(layers)
	for i := range layers {
		layers[i].ForwardSeconds /= speed
		layers[i].BackwardSeconds /= speed
	}
	return layers
}

// allReduce is that of each step, were all links like one.
func (s Situation) allReduce(link Link) search.AllReduce {
	return search.AllReduce{
		GradientBytes: s.GradientBytes, BytesPerSecond: link.BytesPerSecond, LatencySeconds: link.LatencySeconds,
	}
}
