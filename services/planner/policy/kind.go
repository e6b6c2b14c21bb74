package policy

import "github.com/reknit/reknit/services/planner/estimate"

// Kind tells how the nodes of a job share its work.
type Kind int

const (
	// Pipelined jobs run micro-batches through pipelines of stages, one forward and one backward.
	Pipelined Kind = iota
	// DataParallel jobs have the whole model at every node.
	DataParallel
	// Sharded jobs spread the state over the nodes of a pipeline, which train the same micro-batches together.
	Sharded
)

// ofKind are the policies of kinds that leave nothing else to choose from.
var ofKind = map[Kind]Policy{
	DataParallel: {Name: "data-parallel", Propose: dataParallel},
	Sharded:      {Name: "sharded", Propose: sharded},
}

// IsUnchosen reports whether a name is of plans that nobody can choose: of a kind of job, or of waiting.
func IsUnchosen(name string) bool {
	for _, own := range ofKind {
		if own.Name == name {
			return true
		}
	}
	return name == Waiting
}

// pipelineSeconds is the time of a pipeline's part of a step, without its all-reduces.
func (s Situation) pipelineSeconds(w wires, p Pipeline) float64 {
	if s.Kind == Sharded {
		return s.groupSeconds(w, p)
	}
	return estimate.OneForwardOneBackward(s.pipeline(w, p)).MakespanSeconds
}

// peakBytes is what each stage of a pipeline keeps at its peak.
func (s Situation) peakBytes(stages []estimate.Range, microBatches int) []int64 {
	if s.Kind == Sharded {
		return s.groupPeakBytes(stages)
	}
	return estimate.PeakBytes(s.Layers, stages, microBatches)
}
