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
// search.Weighed at most, of many nodes one; found, not proven best. O(nodes log nodes + widths * (nodes + layers)), and the
// shares of the batch.
func (s Situation) uneven(k known) []Candidate {
	if s.Speed == nil && slices.Min(s.MemoryBytes) == slices.Max(s.MemoryBytes) {
		return nil
	}
	var candidates []Candidate
	most := search.Weighed
	if len(s.Nodes) > mostRefined {
		most = 1
	}
	classes, order, narrowest := s.classes(), s.strongestFirst(), max(1, s.DataParallel.Least)
	for width := s.widest(len(s.Nodes)); width >= narrowest && len(candidates) < most; width-- {
		if pipelines, fits := s.withPipelines(width).unevenPipelines(k.wires, order, width); fits {
			candidate := s.figured(k, pipelines)
			candidate.Classes = classes
			candidates = append(candidates, candidate)
		}
	}
	return candidates
}

// unevenPipelines deals the nodes to so many pipelines and splits the layers of each. It reports false where one cannot
// hold the model.
func (s Situation) unevenPipelines(w wires, order []int, width int) ([]Pipeline, bool) {
	longest := len(s.Layers)
	if s.PipelineLength.Most > 0 {
		longest = min(longest, s.PipelineLength.Most)
	}
	cuts := s.newCuts()
	var nodes []int
	for p := range width { // before any is split
		if nodes = crew(nodes, order, width, p); len(nodes) < s.PipelineLength.Least || !cuts.mayFit(nodes) {
			return nil, false
		}
	}
	pipelines := make([]Pipeline, width)
	splits := map[string][]estimate.Range{} // by the kinds of the nodes in their order
	for p := range pipelines {
		nodes = crew(nodes, order, width, p)
		nodes = nodes[:min(len(nodes), longest)]
		kinds := s.kindsOf(nodes)
		if _, isKnown := splits[kinds]; !isKnown {
			split, fits := cuts.best(nodes)
			if !fits {
				return nil, false
			}
			splits[kinds] = split
		}
		for st, layers := range splits[kinds] {
			pipelines[p].Stages = append(pipelines[p].Stages, Stage{s.Nodes[nodes[st]], layers})
		}
	}
	return s.clocks(w, pipelines).shared(pipelines, s.MicroBatches), true
}

// kindsOf writes what tells nodes apart but their links.
func (s Situation) kindsOf(nodes []int) string {
	kinds := make([]byte, 0, 16*len(nodes))
	for _, node := range nodes {
		kinds = binary.BigEndian.AppendUint64(kinds, uint64(s.MemoryBytes[node]))
		kinds = binary.BigEndian.AppendUint64(kinds, math.Float64bits(s.speed(node)))
	}
	return string(kinds)
}

// strongestFirst is all nodes, those of most memory first, and of these the fastest.
func (s Situation) strongestFirst() []int {
	order := upTo(len(s.Nodes))
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(s.MemoryBytes[b], s.MemoryBytes[a]), cmp.Compare(s.speed(b), s.speed(a)))
	})
	return order
}

// crew is the nodes of one of so many pipelines, in the memory of another crew: the strongest go to the pipelines in
// turn, forth and back, and each has its larger nodes first.
func crew(other, strongestFirst []int, width, pipeline int) []int {
	nodes := other[:0]
	for turn := 0; ; turn++ {
		at := turn*width + pipeline
		if turn%2 == 1 {
			at = turn*width + width - 1 - pipeline
		}
		if at >= len(strongestFirst) {
			return nodes
		}
		nodes = append(nodes, strongestFirst[at])
	}
}

func (s Situation) speed(node int) float64 {
	if s.Speed == nil {
		return 1
	}
	return s.Speed[node]
}
