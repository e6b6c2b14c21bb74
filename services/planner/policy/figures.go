package policy

import (
	"github.com/reknit/reknit/services/planner/estimate"
)

// figured is the candidate of pipelines that reroute nothing, with what the cost model says of them: the step, the peaks,
// and a transition in which each node fetches what it lacks.
func (s Situation) figured(pipelines []Pipeline) Candidate {
	c := Candidate{Pipelines: pipelines, Replicas: len(pipelines), PeakBytes: map[string]int64{}}
	for p, member := range members(pipelines) {
		for st, peak := range estimate.PeakBytes(s.Layers, member.Stages, member.MicroBatches) {
			c.PeakBytes[pipelines[p].Stages[st].Node] = peak
		}
	}
	c.StepSeconds = s.stepSeconds(pipelines)
	c.TransitionSeconds = s.SwitchSeconds
	if len(s.Current) == 0 {
		return c // every node makes the layers of the first plan itself
	}
	has := map[string]estimate.Range{}
	for i, layers := range s.holds() {
		has[s.Nodes[i]] = layers
	}
	c.TransitionSeconds += s.fetchSeconds(s.largestMissing(has, pipelines))
	return c
}

// pipelineSeconds is the time of one pipeline for its share of a step, on usual nodes and links.
func (s Situation) pipelineSeconds(stages []estimate.Range, microBatches int) float64 {
	return estimate.OneForwardOneBackward(estimate.OfLayers(s.Layers, stages, microBatches, s.Network.TransferSeconds)).MakespanSeconds
}

// largestMissing is the most bytes that a node must fetch to take its stage, given what each has.
func (s Situation) largestMissing(has map[string]estimate.Range, pipelines []Pipeline) int64 {
	largest := int64(0)
	for _, pipeline := range pipelines {
		for _, stage := range pipeline.Stages {
			held, missing := has[stage.Node], int64(0)
			for layer := stage.Layers.First; layer < stage.Layers.End; layer++ {
				if layer < held.First || layer >= held.End {
					missing += s.StateBytes[layer]
				}
			}
			largest = max(largest, missing)
		}
	}
	return largest
}
