package policy

import (
	"fmt"

	"github.com/reknit/reknit/services/planner/estimate"
	"github.com/reknit/reknit/services/planner/search"
)

// Judge checks pipelines that somebody else proposes and returns them as a candidate with our figures, whatever others
// were claimed, and with partitions of our choice. An error says which rule they break.
func Judge(s Situation, name string, pipelines []Pipeline) (Candidate, error) {
	for _, rule := range []func(Situation, []Pipeline) error{withinLimits, everyLayerOnce, everyMicroBatch,
		liveNodesOnce} {
		if err := rule(s, pipelines); err != nil {
			return Candidate{}, err
		}
	}
	candidate := s.figured(s.known(), pipelines)
	candidate.Policy = name
	for i, node := range s.Nodes {
		if peak := candidate.PeakBytes[node]; peak > s.MemoryBytes[i] {
			return Candidate{}, needs(node, peak, s.MemoryBytes[i])
		}
	}
	return candidate, nil
}

// needs says that a node has too little memory for its stage.
func needs(node string, peak, memory int64) error {
	return fmt.Errorf("%s would need %v of memory, and has %v", node, estimate.Bytes(peak), estimate.Bytes(memory))
}

func withinLimits(s Situation, pipelines []Pipeline) error {
	if limits := s.DataParallel; !within(limits, len(pipelines)) {
		return fmt.Errorf("pipelines: expected %d to %d (0: any), got %d", max(1, limits.Least), limits.Most,
			len(pipelines))
	}
	for p, pipeline := range pipelines {
		if limits := s.PipelineLength; !within(limits, len(pipeline.Stages)) {
			return fmt.Errorf("pipelines[%d].stages: expected %d to %d (0: any), got %d", p, max(1, limits.Least),
				limits.Most, len(pipeline.Stages))
		}
	}
	return nil
}

func within(limits search.Limits, count int) bool {
	return count >= max(1, limits.Least) && (limits.Most == 0 || count <= limits.Most)
}

func everyLayerOnce(s Situation, pipelines []Pipeline) error {
	for p, pipeline := range pipelines {
		next := 0
		for st, stage := range pipeline.Stages {
			if stage.Layers.First != next || stage.Layers.End <= next || stage.Layers.End > len(s.Layers) {
				return fmt.Errorf("pipelines[%d].stages[%d].layers: expected some of the %d layers from %d on, got %v",
					p, st, len(s.Layers), next, stage.Layers)
			}
			next = stage.Layers.End
		}
		if next != len(s.Layers) {
			return fmt.Errorf("pipelines[%d]: expected all %d layers, got %d", p, len(s.Layers), next)
		}
	}
	return nil
}

func everyMicroBatch(s Situation, pipelines []Pipeline) error {
	left := s.MicroBatches
	for p, pipeline := range pipelines {
		if pipeline.MicroBatches < 1 || pipeline.MicroBatches > left {
			return fmt.Errorf("pipelines[%d].microBatches: expected 1 to %d of the %d, got %d", p, left, s.MicroBatches,
				pipeline.MicroBatches)
		}
		left -= pipeline.MicroBatches
	}
	if left > 0 {
		return fmt.Errorf("pipelines: expected all %d micro-batches, %d are left", s.MicroBatches, left)
	}
	return nil
}

func liveNodesOnce(s Situation, pipelines []Pipeline) error {
	free := s.alive()
	for p, pipeline := range pipelines {
		for st, stage := range pipeline.Stages {
			if !free[stage.Node] {
				return fmt.Errorf("pipelines[%d].stages[%d].node: expected a node of the request that has no other place, got %q",
					p, st, stage.Node)
			}
			free[stage.Node] = false
		}
	}
	return nil
}
