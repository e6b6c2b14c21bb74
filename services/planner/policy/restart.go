package policy

import (
	"cmp"
	"slices"

	"github.com/reknit/reknit/services/planner/estimate"
	"github.com/reknit/reknit/services/planner/search"
)

// checkpointRestart stops everything and starts anew from a checkpoint with the best plan of equal pipelines (Varuna,
// Pollux): nodes beyond a multiple of the length stay idle, and every node reads all its layers from the store, those too
// that it had. One candidate for each length, the fastest first. The steps since the checkpoint are lost as well, which
// is not counted here.
func checkpointRestart(s Situation) ([]Candidate, error) {
	var candidates []Candidate
	var reasons []error
	most := min(len(s.Layers), len(s.Nodes))
	if s.PipelineLength.Most > 0 {
		most = min(most, s.PipelineLength.Most)
	}
	for length := max(1, s.PipelineLength.Least); length <= most; length++ {
		s := s.withPipelines(s.widest(len(s.Nodes) / length))
		plan, err := s.symmetric(length)
		if err != nil {
			reasons = append(reasons, err)
			continue
		}
		candidate := s.figured(s.seatedInOrder(plan.Pipelines))
		candidate.TransitionSeconds = s.SwitchSeconds + s.RestartSeconds + s.fetchSeconds(s.largestStage(plan.Pipelines))
		candidates = append(candidates, candidate)
	}
	if len(candidates) == 0 {
		return nil, joined(reasons...)
	}
	slices.SortStableFunc(candidates, func(a, b Candidate) int { return cmp.Compare(a.StepSeconds, b.StepSeconds) })
	return candidates[:min(len(candidates), search.Weighed)], nil
}

// symmetric is the fastest plan of equal pipelines of one length, as many as the nodes and the micro-batches allow.
func (s Situation) symmetric(length int) (search.Plan, error) {
	width := s.widest(len(s.Nodes) / length)
	found, err := search.Best(search.Problem{
		Nodes: width * length, NodeMemoryBytes: slices.Min(s.MemoryBytes), Layers: s.Layers, MicroBatches: s.MicroBatches,
		TransferSeconds: s.Network.TransferSeconds, PipelineLength: search.Limits{Least: length, Most: length},
		DataParallel: search.Limits{Least: max(width, s.DataParallel.Least), Most: width},
	})
	return found.Plan, err
}

// seatedInOrder gives the places to the nodes in their order: what a node holds is of no use to a restart.
func (s Situation) seatedInOrder(plan []estimate.Member) []Pipeline {
	pipelines, next := make([]Pipeline, len(plan)), 0
	for p, member := range plan {
		pipelines[p].MicroBatches = member.MicroBatches
		for _, layers := range member.Stages {
			pipelines[p].Stages = append(pipelines[p].Stages, Stage{Node: s.Nodes[next], Layers: layers})
			next++
		}
	}
	return pipelines
}

func (s Situation) largestStage(plan []estimate.Member) int64 {
	largest := int64(0)
	for _, member := range plan {
		for _, layers := range member.Stages {
			largest = max(largest, sum(s.StateBytes[layers.First:layers.End]))
		}
	}
	return largest
}
