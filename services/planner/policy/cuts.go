package policy

import (
	"math"

	"github.com/reknit/reknit/services/planner/estimate"
)

// cuts finds contiguous splits of the layers over nodes that differ.
type cuts struct {
	situation          Situation
	work               []float64 // of the layers before each, on a node of speed 1
	static, activation []int64   // the same
	from               [][]int   // by stage and end: the first layer that the stage may begin at
	ends               []int     // by layer: the first at or behind it that the stages so far may end before
}

func (s Situation) newCuts() *cuts {
	n := len(s.Layers) + 1
	c := &cuts{
		situation: s, work: make([]float64, n), static: make([]int64, n), activation: make([]int64, n),
		ends: make([]int, n+1),
	}
	for i, layer := range s.Layers {
		c.work[i+1] = c.work[i] + layer.ForwardSeconds + layer.BackwardSeconds
		c.static[i+1] = c.static[i] + layer.StaticBytes
		c.activation[i+1] = c.activation[i] + layer.ActivationBytes
	}
	return c
}

// mayFit reports whether nodes together hold the model and the activations of a micro-batch.
func (c *cuts) mayFit(nodes []int) bool {
	memory, last := 0.0, len(c.work)-1
	for _, node := range nodes {
		memory += float64(c.situation.MemoryBytes[node])
	}
	return memory*(1+1e-9) >= float64(c.static[last]+c.activation[last]) // sums may round
}

// best is the split over some nodes in their order whose slowest stage is fastest, among those that fit into memory with
// as many micro-batches in flight as there can be. It bisects the time of that stage, and looks at no time between two
// that a stage can take, so that it is exact after few steps. O(nodes * layers) each.
func (c *cuts) best(nodes []int) (splits []estimate.Range, fits bool) {
	for len(c.from) < len(nodes) {
		c.from = append(c.from, make([]int, len(c.work)))
	}
	last, speeds := len(c.work)-1, 0.0
	for _, node := range nodes {
		speeds += c.situation.speed(node)
	}
	fits, _ = c.within(nodes, math.Inf(1))
	if !fits {
		return nil, false
	}
	splits = c.split(len(nodes))
	least, most := c.work[last]/speeds*(1-1e-12), c.slowest(nodes, splits)
	for least < most {
		middle := least + (most-least)/2
		if middle >= most {
			middle = least
		}
		fits, next := c.within(nodes, middle)
		if !fits {
			least = next
			continue
		}
		splits = c.split(len(nodes))
		most = c.slowest(nodes, splits)
	}
	return splits, true
}

// seconds is what a micro-batch takes on some layers at a node.
func (c *cuts) seconds(first, end, node int) float64 {
	return (c.work[end] - c.work[first]) / c.situation.speed(node)
}

func (c *cuts) slowest(nodes []int, splits []estimate.Range) float64 {
	slowest := 0.0
	for st, layers := range splits {
		slowest = max(slowest, c.seconds(layers.First, layers.End, nodes[st]))
	}
	return slowest
}

// within reports whether there is a split in which no stage takes longer than so many seconds a micro-batch, and notes in
// from where its stages may begin. Else next is a time below which there is none either.
func (c *cuts) within(nodes []int, limit float64) (fits bool, next float64) {
	layers := len(c.work) - 1
	for layer := range c.ends {
		c.ends[layer] = layers + 1
	}
	c.ends[0], next = 0, math.Inf(1)
	for st, node := range nodes {
		inFlight := int64(estimate.InFlight(st, len(nodes), c.situation.MicroBatches))
		memory, first := c.situation.MemoryBytes[node], 0
		for end := 1; end <= layers; end++ {
			for c.static[end]-c.static[first]+inFlight*(c.activation[end]-c.activation[first]) > memory {
				first++
			}
			for seconds := c.seconds(first, end, node); seconds > limit; seconds = c.seconds(first, end, node) {
				next = min(next, seconds)
				first++
			}
			c.from[st][end] = c.ends[first]
		}
		c.ends[layers+1] = layers + 1
		for end := layers; end > 0; end-- {
			c.ends[end] = c.ends[end+1]
			if c.from[st][end] < end {
				c.ends[end] = end
			}
		}
		c.ends[0] = c.ends[1]
	}
	return c.ends[layers] == layers, next
}

// split walks back from the last layer along what within has noted.
func (c *cuts) split(stages int) []estimate.Range {
	splits, end := make([]estimate.Range, stages), len(c.work)-1
	for st := stages - 1; st >= 0; st-- {
		splits[st] = estimate.Range{First: c.from[st][end], End: end}
		end = splits[st].First
	}
	return splits
}
