package policy

import (
	"slices"

	"github.com/reknit/reknit/services/planner/estimate"
)

// dearSeconds is what pairs without a direct link add to a step: neighbours in a pipeline, and holders of one layer.
func (s Situation) dearSeconds(pipelines []Pipeline) float64 {
	if len(s.Network.Dear) == 0 {
		return 0
	}
	places, count := seats(pipelines), 0
	for _, pair := range s.Network.Dear {
		a, seated := places[s.Nodes[pair[0]]]
		b, both := places[s.Nodes[pair[1]]]
		if seated && both && a.Talks(b) {
			count++
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

// alive returns the nodes there are, by name.
func (s Situation) alive() map[string]bool {
	alive := make(map[string]bool, len(s.Nodes))
	for _, node := range s.Nodes {
		alive[node] = true
	}
	return alive
}

// holds returns, per node, the layers it trains under the plan in force and still has.
func (s Situation) holds() []estimate.Range {
	layers := make(map[string]estimate.Range, len(s.Nodes))
	for _, pipeline := range s.Current {
		for _, stage := range pipeline.Stages {
			layers[stage.Node] = stage.Layers
		}
	}
	for _, node := range s.Empty {
		delete(layers, node)
	}
	holds := make([]estimate.Range, len(s.Nodes))
	for i, node := range s.Nodes {
		holds[i] = layers[node]
	}
	return holds
}

// replicas returns how many live holders the layer, or partition of one, with the fewest keeps under the plan in force.
func (s Situation) replicas() int { return slices.Min(s.holders(s.alive())) }

// holders returns how many of some nodes keep each layer under the plan in force, then each layer's partition 0, and so
// on.
func (s Situation) holders(some map[string]bool) []int {
	holders := make([]int, len(s.Layers)*(1+s.Partitions))
	for _, pipeline := range s.Current {
		for _, stage := range pipeline.Stages {
			if !some[stage.Node] {
				continue
			}
			for layer := stage.Layers.First; layer < stage.Layers.End; layer++ {
				holders[layer]++
				for _, partition := range pipeline.Partitions {
					holders[(1+partition)*len(s.Layers)+layer]++
				}
			}
		}
	}
	return holders
}

// members strips the nodes off pipelines, as the cost model wants them.
func members(pipelines []Pipeline) []estimate.Member {
	list := make([]estimate.Member, len(pipelines))
	for p, pipeline := range pipelines {
		list[p].MicroBatches, list[p].Stages = pipeline.MicroBatches, make([]estimate.Range, 0, len(pipeline.Stages))
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
