package recovery

import (
	"cmp"
	"errors"
	"slices"

	"github.com/reknit/reknit/services/planner/policy"
	"github.com/reknit/reknit/services/planner/search"
)

// Restart stops everything and starts anew from a checkpoint with the best plan of equal pipelines (Varuna, Pollux):
// nodes beyond a multiple of the length stay idle, and every node reads all its layers from the store, those too that
// it had. It takes restartSeconds beside that. The steps since the checkpoint are lost as well, which is not counted
// here. It returns one candidate for each length, the fastest first.
func Restart(s policy.Situation, restartSeconds float64) ([]policy.Candidate, error) {
	var candidates []policy.Candidate
	var reasons []error
	for length := max(1, s.PipelineLength.Least); length <= longestOf(s); length++ {
		candidate, err := equalPipelines(s, length)
		if err != nil {
			reasons = append(reasons, err)
			continue
		}
		candidate.TransitionSeconds = s.SwitchSeconds + restartSeconds
		if s.Network.BytesPerSecond > 0 {
			candidate.TransitionSeconds += float64(largestStage(s, candidate)) / s.Network.BytesPerSecond
		}
		candidates = append(candidates, candidate)
	}
	slices.SortStableFunc(candidates,
		func(a, b policy.Candidate) int { return cmp.Compare(a.StepSeconds, b.StepSeconds) })
	if len(candidates) == 0 {
		return nil, errors.Join(reasons...)
	}
	return candidates, nil
}

// equalPipelines is the fastest plan of equal pipelines of one length, as many as the nodes and the micro-batches
// allow. Nodes take the places in their order: what a node holds is of no use to a restart.
func equalPipelines(s policy.Situation, length int) (policy.Candidate, error) {
	width := min(len(s.Nodes)/length, s.MicroBatches)
	if s.DataParallel.Most > 0 {
		width = min(width, s.DataParallel.Most)
	}
	found, err := search.Best(search.Problem{
		Nodes: width * length, NodeMemoryBytes: slices.Min(s.MemoryBytes), Layers: s.Layers,
		MicroBatches:    s.MicroBatches,
		TransferSeconds: s.Network.TransferSeconds, PipelineLength: search.Limits{Least: length, Most: length},
		DataParallel: search.Limits{Least: max(width, s.DataParallel.Least), Most: width},
	})
	if err != nil {
		return policy.Candidate{}, err
	}
	pipelines, next := make([]policy.Pipeline, len(found.Pipelines)), 0
	for p, member := range found.Pipelines {
		pipelines[p].MicroBatches = member.MicroBatches
		for _, layers := range member.Stages {
			pipelines[p].Stages = append(pipelines[p].Stages, policy.Stage{Node: s.Nodes[next], Layers: layers})
			next++
		}
	}
	return policy.Judge(s, "checkpoint-restart", pipelines)
}

// largestStage is the most bytes that one node must read.
func largestStage(s policy.Situation, candidate policy.Candidate) int64 {
	largest := int64(0)
	for _, pipeline := range candidate.Pipelines {
		for _, stage := range pipeline.Stages {
			bytes := int64(0)
			for _, layer := range s.StateBytes[stage.Layers.First:stage.Layers.End] {
				bytes += layer
			}
			largest = max(largest, bytes)
		}
	}
	return largest
}
