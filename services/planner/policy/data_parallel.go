package policy

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/reknit/reknit/services/planner/estimate"
)

// dataParallel proposes the plan of a job whose nodes all have the whole model: each is a pipeline of one stage and takes as
// many micro-batches as its speed allows. Left out are who cannot hold it, who is one too many for the micro-batches, and
// whose links would slow the others down (withoutSlow). If there are such, the plan with them is the second candidate.
func dataParallel(s Situation) ([]Candidate, error) {
	nodes, err := s.able()
	if err != nil {
		return nil, err
	}
	placed, idle := s.withoutSlow(nodes)
	best := s.replicated(placed)
	if len(placed) == len(nodes) {
		return []Candidate{best}, nil
	}
	best.Idle = idle
	return []Candidate{best, s.replicated(nodes)}, nil
}

// replicated is the candidate in which these nodes train.
func (s Situation) replicated(nodes []int) Candidate {
	candidate, speeds := s.figured(s.known(), s.replicasOf(nodes)), 0.0
	for _, node := range nodes {
		speeds += s.speed(node)
	}
	candidate.LowerBoundSeconds = s.microBatchSeconds() * float64(s.MicroBatches) / speeds * (1 - 1e-12) // sums may round up
	return candidate
}

// able are the nodes that get a place, in their order.
func (s Situation) able() ([]int, error) {
	nodes, need := upTo(len(s.Nodes)), int64(0)
	for count := -1; count != len(nodes) && len(nodes) > 0; { // the fewer there are, the more each keeps
		count = len(nodes)
		need = s.withPipelines(count).peakBytes([]estimate.Range{s.model()}, 1)[0]
		nodes = slices.DeleteFunc(nodes, func(node int) bool { return s.MemoryBytes[node] < need })
	}
	least, most := max(1, s.DataParallel.Least), slices.Max(s.MemoryBytes)
	switch {
	case len(nodes) >= least:
	case most <= 1:
		return nil, fmt.Errorf("nodes: expected %d with a script, got none: the agents here only give what scripts left", least)
	default:
		return nil, fmt.Errorf("pipelines: expected %d nodes that can hold the model of %v, got %d, and the largest has %v", least,
			estimate.Bytes(need), len(nodes), estimate.Bytes(most))
	}
	if len(nodes) > s.MicroBatches {
		holds := s.holds()
		slices.SortStableFunc(nodes, func(a, b int) int {
			return cmp.Or(cmp.Compare(holds[b].Len(), holds[a].Len()), cmp.Compare(s.speed(b), s.speed(a)))
		})
		nodes = slices.Sorted(slices.Values(nodes[:s.MicroBatches]))
	}
	return nodes, nil
}

// model is all layers.
func (s Situation) model() estimate.Range { return estimate.Range{End: len(s.Layers)} }

// microBatchSeconds is what one micro-batch takes on one node of usual speed.
func (s Situation) microBatchSeconds() float64 {
	seconds := 0.0
	for _, layer := range s.Layers {
		seconds += layer.ForwardSeconds + layer.BackwardSeconds
	}
	return seconds
}

// overlappedSeconds is the step time where gradients are all-reduced while the last micro-batch goes backward, as
// they come about (DDP): the all-reduce begins when the slowest node begins that, and cannot end before all nodes
// have.
func (s Situation) overlappedSeconds(w wires, pipelines []Pipeline) float64 {
	return s.computed(w, pipelines).overlapped(s.aroundSeconds(pipelines))
}

// computed is what the nodes of a step take to compute: until all have done so, and until the last of them begins to go backward for
// the last time.
type computed struct{ seconds, begunSeconds float64 }

func (s Situation) computed(w wires, pipelines []Pipeline) (c computed) {
	for _, pipeline := range pipelines {
		timed := s.pipeline(w, pipeline)
		backward := timed.BackwardSeconds[0]
		seconds := float64(pipeline.MicroBatches) * (timed.ForwardSeconds[0] + backward)
		c.seconds, c.begunSeconds = max(c.seconds, seconds), max(c.begunSeconds, seconds-backward)
	}
	return c
}

// overlapped is the step where the all-reduce takes so long.
func (c computed) overlapped(aroundSeconds float64) float64 {
	return max(c.seconds, c.begunSeconds+aroundSeconds)
}

// aroundSeconds is what the replicas take to reduce in the order of their ring.
func (s Situation) aroundSeconds(pipelines []Pipeline) float64 {
	if s.Network.isAlike() {
		return s.syncSeconds(wires{network: s.Network}, pipelines)
	}
	index := make(map[string]int, len(s.Nodes))
	for i, node := range s.Nodes {
		index[node] = i
	}
	var nodes []int
	for p, pipeline := range pipelines {
		node, alive := index[pipeline.Stages[0].Node]
		if !alive {
			node = -1 - p // whose links are not told any more
		}
		nodes = append(nodes, node)
	}
	_, seconds := s.reducing(nodes, sum(s.GradientBytes)).order()
	return seconds
}
