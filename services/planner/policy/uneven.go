package policy

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"

	"github.com/reknit/reknit/services/planner/estimate"
	"github.com/reknit/reknit/services/planner/search"
)

// uneven plans for nodes of unequal memory or speed what a search over equal nodes cannot see: pipelines in which each
// stage has as many layers as its node can hold and train in time. Nodes are dealt to the pipelines so that all are
// about as strong, the larger ones of each in front, where most activations are kept. The widest plans that fit,
// search.Weighed at most; found, not proven best. O(widths * (nodes log nodes + layers)), and the shares of the batch.
func (s Situation) uneven() []Candidate {
	if s.Speed == nil && slices.Min(s.MemoryBytes) == slices.Max(s.MemoryBytes) {
		return nil
	}
	var candidates []Candidate
	classes, narrowest := s.classes(), max(1, s.DataParallel.Least)
	for width := s.widest(len(s.Nodes)); width >= narrowest && len(candidates) < search.Weighed; width-- {
		if pipelines, fits := s.withPipelines(width).unevenPipelines(width); fits {
			candidate := s.figured(pipelines)
			candidate.Classes = classes
			candidates = append(candidates, candidate)
		}
	}
	return candidates
}

// unevenPipelines deals the nodes to so many pipelines and splits the layers of each. It reports false where one cannot
// hold the model.
func (s Situation) unevenPipelines(width int) ([]Pipeline, bool) {
	longest := len(s.Layers)
	if s.PipelineLength.Most > 0 {
		longest = min(longest, s.PipelineLength.Most)
	}
	pipelines, kinds := make([]Pipeline, width), make([]int, width)
	known := map[string]int{} // the first pipeline of nodes of these kinds in this order
	for p, nodes := range s.crews(width) {
		nodes = nodes[:min(len(nodes), longest)]
		kind := s.kindsOf(nodes)
		first, isKnown := known[kind]
		if !isKnown {
			first, known[kind] = p, p
			splits, fits := s.unevenSplit(nodes)
			if !fits || len(nodes) < s.PipelineLength.Least {
				return nil, false
			}
			for _, layers := range splits {
				pipelines[p].Stages = append(pipelines[p].Stages, Stage{Layers: layers})
			}
		}
		kinds[p], pipelines[p].Stages = first, slices.Clone(pipelines[first].Stages)
		for st, node := range nodes {
			pipelines[p].Stages[st].Node = s.Nodes[node]
		}
	}
	s.share(pipelines, kinds)
	return pipelines, true
}

// kindsOf writes what tells nodes apart but their links.
func (s Situation) kindsOf(nodes []int) string {
	var kinds []byte
	for _, node := range nodes {
		kinds = binary.BigEndian.AppendUint64(kinds, uint64(s.MemoryBytes[node]))
		kinds = binary.BigEndian.AppendUint64(kinds, math.Float64bits(s.speed(node)))
	}
	return string(kinds)
}

// share deals the micro-batches so that the slowest pipeline is as fast as possible. Pipelines of one kind take the
// same time where no link is unusual.
func (s Situation) share(pipelines []Pipeline, kinds []int) {
	wires, times := s.wires(), map[[2]int]float64{}
	shares := search.OptimalBatches(s.MicroBatches, len(pipelines), func(p, microBatches int) float64 {
		key := [2]int{p, microBatches}
		if len(wires.unusual) == 0 {
			key[0] = kinds[p]
		}
		if _, known := times[key]; !known {
			pipeline := pipelines[p]
			pipeline.MicroBatches = microBatches
			times[key] = s.pipelineSeconds(wires, pipeline)
		}
		return times[key]
	})
	for p := range pipelines {
		pipelines[p].MicroBatches = shares[p]
	}
}

// crews are the nodes of so many pipelines: the strongest go to the pipelines in turn, forth and back, and each crew
// has its larger nodes first.
func (s Situation) crews(width int) [][]int {
	order := upTo(len(s.Nodes))
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(s.MemoryBytes[b], s.MemoryBytes[a]), cmp.Compare(s.speed(b), s.speed(a)))
	})
	groups := make([][]int, width)
	for i, node := range order {
		p := i % width
		if i/width%2 == 1 {
			p = width - 1 - p
		}
		groups[p] = append(groups[p], node)
	}
	return groups
}

func (s Situation) speed(node int) float64 {
	if s.Speed == nil {
		return 1
	}
	return s.Speed[node]
}

// unevenSplit is the contiguous split over some nodes in their order whose slowest stage is fastest, among those that
// fit into memory with as many micro-batches in flight as there can be. It bisects the time of that stage, to a
// billionth. O(nodes * layers^2) at worst, and mostly far less.
func (s Situation) unevenSplit(nodes []int) (splits []estimate.Range, fits bool) {
	least, most := 0.0, 0.0
	for _, layer := range s.Layers {
		most += layer.ForwardSeconds + layer.BackwardSeconds
	}
	if s.Speed != nil {
		most /= slices.Min(s.Speed)
	}
	if splits, fits = s.splitWithin(nodes, most); !fits {
		return nil, false
	}
	const halvings = 30
	for range halvings {
		middle := (least + most) / 2
		if better, fits := s.splitWithin(nodes, middle); fits {
			splits, most = better, middle
		} else {
			least = middle
		}
	}
	return splits, true
}

// splitWithin is a split in which no stage takes longer than so many seconds a micro-batch. Which layers the first
// nodes can end at is computed node by node; then one way back is walked.
func (s Situation) splitWithin(nodes []int, seconds float64) ([]estimate.Range, bool) {
	ends := make([][]bool, len(nodes)+1) // after so many nodes: the layers that may come next
	ends[0] = make([]bool, len(s.Layers)+1)
	ends[0][0] = true
	from := make([][]int, len(nodes)) // by node and end: the first layer that it may begin at
	for st := range nodes {
		ends[st+1], from[st] = make([]bool, len(s.Layers)+1), make([]int, len(s.Layers)+1)
		stage := s.newWindow(nodes, st, seconds)
		for end := 1; end <= len(s.Layers); end++ {
			first := stage.extend(end)
			for first < end && !ends[st][first] {
				first++
			}
			ends[st+1][end], from[st][end] = first < end, first
		}
	}
	splits, end := make([]estimate.Range, len(nodes)), len(s.Layers)
	if !ends[len(nodes)][end] {
		return nil, false
	}
	for st := len(nodes) - 1; st >= 0; st-- {
		splits[st] = estimate.Range{First: from[st][end], End: end}
		end = from[st][end]
	}
	return splits, true
}

// window is the longest run of layers up to some end that a node can hold and train in time.
type window struct {
	layers   []estimate.Layer
	speed    float64 // of the node
	memory   int64   // of the node
	inFlight int64
	seconds  float64
	first    int
	work     float64
	bytes    int64
}

func (s Situation) newWindow(nodes []int, stage int, seconds float64) *window {
	node, inFlight := nodes[stage], estimate.InFlight(stage, len(nodes), s.MicroBatches)
	return &window{
		layers: s.Layers, speed: s.speed(node), memory: s.MemoryBytes[node], inFlight: int64(inFlight), seconds: seconds,
	}
}

// extend takes one layer more in, and returns where the run begins now.
func (w *window) extend(end int) int {
	w.add(w.layers[end-1], 1)
	for w.first < end && (w.work/w.speed > w.seconds*(1+1e-12) || w.bytes > w.memory) {
		w.add(w.layers[w.first], -1)
		w.first++
	}
	return w.first
}

func (w *window) add(layer estimate.Layer, times int64) {
	w.work += float64(times) * (layer.ForwardSeconds + layer.BackwardSeconds)
	w.bytes += times * (layer.StaticBytes + w.inFlight*layer.ActivationBytes)
}
