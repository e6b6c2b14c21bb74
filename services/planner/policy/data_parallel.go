package policy

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/reknit/reknit/services/planner/estimate"
	"github.com/reknit/reknit/services/planner/search"
)

// dataParallel proposes the one plan of a job whose nodes all have the whole model: each is a pipeline of one stage
// and takes as many micro-batches as its speed allows. No node is left out for its links: they may have been
// measured badly, and a spare holds nothing, so that the next loss would move the model. Only who cannot hold it
// has no place, and who is one too many for the micro-batches.
func dataParallel(s Situation) ([]Candidate, error) {
	nodes, err := s.able()
	if err != nil {
		return nil, err
	}
	micro, total := s.microBatchSeconds(), 0.0
	shares := search.OptimalBatches(s.MicroBatches, len(nodes), func(p, microBatches int) float64 {
		return float64(microBatches) * micro / s.speed(nodes[p])
	})
	var pipelines []Pipeline
	for p, node := range nodes {
		total += s.speed(node)
		pipelines = append(pipelines, Pipeline{MicroBatches: shares[p], Stages: []Stage{{s.Nodes[node], s.model()}}})
	}
	candidate := s.figured(s.known(), pipelines)
	candidate.LowerBoundSeconds = micro * float64(s.MicroBatches) / total * (1 - 1e-12) // sums may round up
	return []Candidate{candidate}, nil
}

// able are the nodes that get a place, in their order.
func (s Situation) able() ([]int, error) {
	nodes, need := upTo(len(s.Nodes)), int64(0)
	for count := -1; count != len(nodes) && len(nodes) > 0; { // the fewer there are, the more each keeps
		count = len(nodes)
		need = s.withPipelines(count).peakBytes([]estimate.Range{s.model()}, 1)[0]
		nodes = slices.DeleteFunc(nodes, func(node int) bool { return s.MemoryBytes[node] < need })
	}
	if least := max(1, s.DataParallel.Least); len(nodes) < least {
		return nil, fmt.Errorf("pipelines: expected %d nodes that can hold the model of %d bytes, got %d", least, need,
			len(nodes))
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
	computed, begun := 0.0, 0.0
	for _, pipeline := range pipelines {
		timed := s.pipeline(w, pipeline)
		backward := timed.BackwardSeconds[0]
		seconds := float64(pipeline.MicroBatches) * (timed.ForwardSeconds[0] + backward)
		computed, begun = max(computed, seconds), max(begun, seconds-backward)
	}
	return max(computed, begun+s.syncSeconds(w, pipelines)) + s.dearSeconds(pipelines)
}
