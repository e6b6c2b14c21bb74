package policy

import (
	"slices"

	"github.com/reknit/reknit/services/planner/estimate"
)

// relayedShare is what a pair without a direct link has of its bandwidth through the hub, as the restorer takes it.
const relayedShare = 0.1

// fetches is what nodes must fetch for a plan, from whom they can, and over which links: each layer from all its holders
// at a time, each holder to all who ask, as the restorer divides it. Partitions of a layer count as if all its holders
// had them.
type fetches struct {
	situation Situation
	layers    []source  // by layer
	into      [][]reach // by node: its unusual links as a receiver
	uplink    []float64 // by node: its best link, bytes a second
	downlink  []float64
	node      map[string]int
}

// source is who holds a layer.
type source struct {
	holders []int   // by index, ascending
	uplinks float64 // of all of them together
	same    int     // the first of the layers before that just these hold
}

// reach is an unusual way from a node.
type reach struct {
	from           int
	bytesPerSecond float64
}

// newFetches looks at who holds what under the plan in force. O(nodes + holdings + links).
func (s Situation) newFetches(holds []estimate.Range) *fetches {
	f := &fetches{
		situation: s, layers: make([]source, len(s.Layers)), into: make([][]reach, len(s.Nodes)),
		uplink: slices.Repeat([]float64{s.Network.BytesPerSecond}, len(s.Nodes)), node: make(map[string]int, len(s.Nodes)),
	}
	f.downlink = slices.Clone(f.uplink)
	for i, name := range s.Nodes {
		f.node[name] = i
	}
	for _, link := range s.Network.Links {
		f.into[link.To] = append(f.into[link.To], reach{link.From, link.BytesPerSecond})
	}
	for _, pair := range s.Network.Dear {
		relayed := relayedShare * s.Network.BytesPerSecond
		f.into[pair[0]] = append(f.into[pair[0]], reach{pair[1], relayed})
		f.into[pair[1]] = append(f.into[pair[1]], reach{pair[0], relayed})
	}
	out := make([][]reach, len(s.Nodes))
	for to, ways := range f.into {
		f.downlink[to] = f.best(ways)
		for _, way := range ways {
			out[way.from] = append(out[way.from], reach{to, way.bytesPerSecond})
		}
	}
	for from, ways := range out {
		f.uplink[from] = f.best(ways)
	}
	f.hold(holds)
	return f
}

// best is the fastest of a node's links, of which all but those are usual.
func (f *fetches) best(ways []reach) float64 {
	best := 0.0
	if len(ways) == 0 || len(ways) < len(f.situation.Nodes)-1 {
		best = f.situation.Network.BytesPerSecond
	}
	for _, way := range ways {
		best = max(best, way.bytesPerSecond)
	}
	return best
}

func (f *fetches) hold(holds []estimate.Range) {
	for node, layers := range holds {
		for layer := layers.First; layer < min(layers.End, len(f.layers)); layer++ {
			f.layers[layer].holders = append(f.layers[layer].holders, node)
			f.layers[layer].uplinks += f.uplink[node]
		}
	}
	for layer := range f.layers {
		f.layers[layer].same = layer
		if layer > 0 && slices.Equal(f.layers[layer].holders, f.layers[layer-1].holders) {
			f.layers[layer].same = f.layers[layer-1].same
		}
	}
}

// seconds until all nodes of a plan have what they lack. It is the longest of: what a node fetches over its downlink; what it fetches of
// the layers that the same nodes hold, over their links to it together; and what all fetch of such layers, over the uplinks of these nodes.
// The restorer takes no less, and more only where several such sets of layers share holders that are slower than the others. Layers that
// nobody holds count as coming over a usual link.
func (f *fetches) seconds(has map[string]holding, pipelines []Pipeline) float64 {
	longest, asked := 0.0, make([]int64, len(f.layers)) // by the first layer of those with the same holders
	for _, pipeline := range pipelines {
		for _, stage := range pipeline.Stages {
			to, isAlive := f.node[stage.Node]
			if !isAlive {
				continue
			}
			all, same, group := int64(0), int64(0), -1
			for layer := stage.Layers.First; layer < stage.Layers.End; layer++ {
				bytes := f.situation.missing(has[stage.Node], layer, len(pipeline.Partitions))
				if of := f.layers[layer].same; of != group {
					longest = max(longest, f.over(same, group, to))
					same, group = 0, of
				}
				all, same, asked[group] = all+bytes, same+bytes, asked[group]+bytes
			}
			longest = max(longest, f.over(same, group, to), float64(all)/f.downlink[to])
		}
	}
	for layer, bytes := range asked {
		if uplinks := f.layers[layer].uplinks; bytes > 0 && uplinks > 0 {
			longest = max(longest, float64(bytes)/uplinks)
		}
	}
	return longest
}

// over is the time in which a node fetches so many bytes of layers with the same holders from these.
func (f *fetches) over(bytes int64, layer, to int) float64 {
	if bytes == 0 {
		return 0
	}
	holders, usual := f.layers[layer].holders, f.situation.Network.BytesPerSecond
	rate, unusual := 0.0, 0
	for _, way := range f.into[to] {
		if _, holds := slices.BinarySearch(holders, way.from); holds {
			rate, unusual = rate+way.bytesPerSecond, unusual+1
		}
	}
	rate += float64(len(holders)-unusual) * usual
	if len(holders) == 0 {
		rate = usual
	}
	return float64(bytes) / rate
}
