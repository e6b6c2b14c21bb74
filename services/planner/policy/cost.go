package policy

import (
	"slices"

	"github.com/reknit/reknit/services/planner/estimate"
)

// syncSeconds is the time of the all-reduces of a step: the device with most to reduce sets it (restorer's rounds reach
// that bound for contiguous stages).
func (s Situation) syncSeconds(pipelines []Pipeline) float64 {
	if len(pipelines) < 2 || s.Network.BytesPerSecond <= 0 {
		return 0
	}
	slowest := 0.0
	for _, pipeline := range pipelines {
		for _, stage := range pipeline.Stages {
			bytes := sum(s.GradientBytes[stage.Layers.First:stage.Layers.End])
			slowest = max(slowest, estimate.RingSeconds(bytes, len(pipelines), s.Network.BytesPerSecond, s.Network.LatencySeconds))
		}
	}
	return slowest
}

// dearSeconds is what pairs without a direct link add to a step: neighbours in a pipeline, and holders of one layer.
func (s Situation) dearSeconds(pipelines []Pipeline) float64 {
	if s.Network.Dear == nil {
		return 0
	}
	count := 0
	pair := func(a, b string) {
		i, j := slices.Index(s.Nodes, a), slices.Index(s.Nodes, b)
		if i >= 0 && j >= 0 && s.Network.Dear(i, j) {
			count++
		}
	}
	for p, pipeline := range pipelines {
		for st, stage := range pipeline.Stages {
			if st > 0 {
				pair(pipeline.Stages[st-1].Node, stage.Node)
			}
			for _, other := range pipelines[p+1:] {
				for _, peer := range other.Stages {
					if stage.Layers.Shared(peer.Layers) > 0 {
						pair(stage.Node, peer.Node)
					}
				}
			}
		}
	}
	return float64(count) * s.Network.DearSeconds
}

// fetchSeconds is the time in which one node fetches so many bytes.
func (s Situation) fetchSeconds(bytes int64) float64 {
	if s.Network.BytesPerSecond <= 0 {
		return 0
	}
	return float64(bytes) / s.Network.BytesPerSecond
}

// lives reports whether a node of the plan in force is still there.
func (s Situation) lives(node string) bool { return slices.Contains(s.Nodes, node) }

// holds returns the layers a node trains under the plan in force and still has.
func (s Situation) holds(node string) estimate.Range {
	if slices.Contains(s.Empty, node) {
		return estimate.Range{}
	}
	for _, pipeline := range s.Current {
		for _, stage := range pipeline.Stages {
			if stage.Node == node {
				return stage.Layers
			}
		}
	}
	return estimate.Range{}
}

// replicas returns how many live holders the layer with the fewest keeps under the plan in force.
func (s Situation) replicas() int {
	fewest := len(s.Current)
	for layer := range s.Layers {
		holders := 0
		for _, pipeline := range s.Current {
			for _, stage := range pipeline.Stages {
				if stage.Layers.First <= layer && layer < stage.Layers.End && s.lives(stage.Node) {
					holders++
				}
			}
		}
		fewest = min(fewest, holders)
	}
	return fewest
}

// members strips the nodes off pipelines, as the cost model wants them.
func members(pipelines []Pipeline) []estimate.Member {
	list := make([]estimate.Member, len(pipelines))
	for p, pipeline := range pipelines {
		list[p].MicroBatches = pipeline.MicroBatches
		for _, stage := range pipeline.Stages {
			list[p].Stages = append(list[p].Stages, stage.Layers)
		}
	}
	return list
}

func sum(values []int64) int64 {
	total := int64(0)
	for _, value := range values {
		total += value
	}
	return total
}
