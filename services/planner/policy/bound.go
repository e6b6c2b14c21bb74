package policy

import (
	"slices"

	"github.com/reknit/reknit/services/planner/estimate"
	"github.com/reknit/reknit/services/planner/search"
)

// lowerBound holds for unequal nodes and links, and plans of at least so many pipelines: as if all were like the best of
// them, and no faster than the work shared by speed. It is zero where there is no plan even then.
func (s Situation) lowerBound(pipelines int) float64 {
	best := s.problem(len(s.Nodes), slices.Max(s.MemoryBytes), 1)
	best.DataParallel.Least = max(best.DataParallel.Least, pipelines)
	if s.Speed != nil {
		fastest := slices.Max(s.Speed)
		best.Layers = faster(best.Layers, fastest)
		for i := range best.Shares {
			best.Shares[i].Layers = faster(best.Shares[i].Layers, fastest)
		}
		best.Floor = s.shared()
	}
	for _, link := range s.Network.Links {
		best.TransferSeconds = min(best.TransferSeconds, s.Network.transferSeconds(link))
	}
	best.AllReduce = s.allReduce(s.bestLink())
	found, err := s.find(best, 1)
	if err != nil {
		return 0
	}
	return found.LowerBoundSeconds * (1 - 1e-12) // sums may round up
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

// faster is layers on nodes so many times as fast.
func faster(layers []estimate.Layer, speed float64) []estimate.Layer {
	if speed == 1 {
		return layers
	}
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

// shared returns what all work takes at least on the fastest nodes, as many as so many pipelines can be.
func (s Situation) shared() func(pipelines int) (seconds float64) {
	longest, work := len(s.Layers), 0.0
	if s.PipelineLength.Most > 0 {
		longest = min(longest, s.PipelineLength.Most)
	}
	for _, layer := range s.Layers {
		work += layer.ForwardSeconds + layer.BackwardSeconds
	}
	sums := []float64{0} // of so many of the highest speeds
	for _, speed := range slices.Backward(slices.Sorted(slices.Values(s.Speed))) {
		sums = append(sums, sums[len(sums)-1]+speed)
	}
	return func(pipelines int) float64 {
		return work * float64(s.MicroBatches) / sums[min(len(s.Nodes), pipelines*longest)]
	}
}
