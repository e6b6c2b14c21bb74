package policy

import (
	"github.com/reknit/reknit/services/planner/estimate"
)

// figured is the candidate of pipelines that reroute nothing, with their partitions and what the cost model says of
// them: the step, the peaks, and a transition in which each node fetches what it lacks.
func (s Situation) figured(k known, pipelines []Pipeline) Candidate {
	s, pipelines = s.withPipelines(len(pipelines)), s.dealt(pipelines)
	c := Candidate{Pipelines: pipelines, Replicas: len(pipelines), PeakBytes: make(map[string]int64, len(s.Nodes))}
	for p, member := range members(pipelines) {
		for st, peak := range s.peakBytes(member.Stages, member.MicroBatches) {
			c.PeakBytes[pipelines[p].Stages[st].Node] = peak
		}
	}
	c.StepSeconds = s.stepSeconds(k.wires, pipelines)
	if len(s.Current) > 0 { // every node makes the layers of the first plan itself
		c.CopySeconds = s.copySeconds(k, pipelines)
	}
	c.TransitionSeconds = s.transitionSeconds(c.CopySeconds)
	return c
}

// transitionSeconds is the price of a plan that takes so long to copy: what moves state pays its transfer and a restart
// (Chameleon IV-C), which is a switch at least, and what moves nothing a switch.
func (s Situation) transitionSeconds(copySeconds float64) float64 {
	if copySeconds > 0 {
		return max(s.SwitchSeconds, s.RestartSeconds) + copySeconds
	}
	return s.SwitchSeconds
}

// known is what is looked up by a node's name for every candidate.
type known struct {
	wires   wires
	has     map[string]holding
	fetches *fetches
}

func (s Situation) known() known {
	holds, kept := s.holds(), s.kept(s.Current)
	k := known{s.wires(), make(map[string]holding, len(s.Nodes)), s.newFetches(holds)}
	for i, layers := range holds {
		k.has[s.Nodes[i]] = holding{layers, len(kept[s.Nodes[i]])}
	}
	return k
}

// copySeconds is how long nodes fetch what they lack for a plan, from who holds it under the plan in force.
func (s Situation) copySeconds(k known, pipelines []Pipeline) float64 {
	if s.Network.BytesPerSecond <= 0 {
		return 0
	}
	fetches := *k.fetches
	fetches.situation = s // with as many pipelines as the plan
	return fetches.seconds(k.has, pipelines)
}

// holding is what a node has: layers, and how many partitions of each.
type holding struct {
	layers     estimate.Range
	partitions int
}

// missing is the bytes of a layer that a node must fetch to train it with so many partitions. It fetches all of a layer
// that it lacks. It fetches only the partitions beyond the number it kept before if it has the layer: the restorer
// deals the lists of partitions so that the fewest bytes move, and most nodes keep the partitions they have.
func (s Situation) missing(held holding, layer, partitions int) int64 {
	if layer < held.layers.First || layer >= held.layers.End {
		return s.StateBytes[layer]
	}
	if more := partitions - held.partitions; more > 0 {
		return s.partitionBytes(layer, more)
	}
	return 0
}

// largestMissing is the most bytes that a node must fetch to take its stage, given what each node has.
func (s Situation) largestMissing(has map[string]holding, pipelines []Pipeline) int64 {
	largest := int64(0)
	for _, pipeline := range pipelines {
		for _, stage := range pipeline.Stages {
			held, missing := has[stage.Node], int64(0)
			for layer := stage.Layers.First; layer < stage.Layers.End; layer++ {
				missing += s.missing(held, layer, len(pipeline.Partitions))
			}
			largest = max(largest, missing)
		}
	}
	return largest
}
