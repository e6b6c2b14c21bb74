package events

import (
	"fmt"
	"math"
	"slices"
)

// Deal gives each pipeline its samples of a step's global batch, and those of a lost node to the nodes that stand
// in for it: one behind the other, in the plan's order.
func (p *Plan) Deal() {
	next, reroutes := 0, p.reroutesOf()
	for i := range p.Pipelines {
		pipeline := &p.Pipelines[i]
		pipeline.Samples = Range{next, next + pipeline.MicroBatches*p.Data.MicroBatch}
		next = pipeline.Samples.End
		for _, stage := range pipeline.Stages {
			p.dealLost(reroutes[stage.Node], pipeline.Samples.First)
		}
	}
}

// dealLost gives the samples from next on to the reroutes of a lost node, which are told by their indices.
func (p *Plan) dealLost(reroutes []int, next int) {
	for _, at := range reroutes {
		reroute := &p.Reroutes[at]
		reroute.Samples = Range{next, next + reroute.MicroBatches*p.Data.MicroBatch}
		next = reroute.Samples.End
	}
}

// reroutesOf returns the indices of the reroutes of each lost node. O(reroutes): a plan of 1,000 nodes may have hundreds, and
// to look through them for each place took a third of the time in which such a plan is checked.
func (p *Plan) reroutesOf() map[string][]int {
	of := map[string][]int{}
	for i, reroute := range p.Reroutes {
		of[reroute.From] = append(of[reroute.From], i)
	}
	return of
}

// Dealt returns the plan with everybody's samples. Plans of before samples were said have none; they were dealt
// alike.
func (p *Plan) Dealt() *Plan {
	dealt := *p
	dealt.Pipelines, dealt.Reroutes = slices.Clone(p.Pipelines), slices.Clone(p.Reroutes)
	dealt.Deal()
	return &dealt
}

// SamplesOf returns which samples of a step's global batch a node trains: those of its pipeline, then those of lost
// nodes that it stands in for. O(places and reroutes).
func (p *Plan) SamplesOf(node string) []Range {
	var own, others []Range
	next, isLost := 0, slices.ContainsFunc(p.Reroutes, func(reroute Reroute) bool { return reroute.From == node })
	for _, pipeline := range p.Pipelines {
		dealt := Range{next, next + pipeline.MicroBatches*p.Data.MicroBatch}
		next = dealt.End
		for _, stage := range pipeline.Stages {
			if stage.Node == node && !isLost {
				own = append(own, dealt)
			}
		}
	}
	if len(p.Reroutes) == 0 {
		return own
	}
	for _, reroute := range p.Dealt().Reroutes {
		if reroute.To == node {
			others = append(others, reroute.Samples)
		}
	}
	return append(own, others...)
}

// WeightOf returns what the mean gradient of the samples that a node trains counts for in the step's.
func (p *Plan) WeightOf(node string) float64 {
	for _, pipeline := range p.Pipelines {
		isHere := func(stage Stage) bool { return stage.Node == node }
		if pipeline.Weight > 0 && slices.ContainsFunc(pipeline.Stages, isHere) {
			return pipeline.Weight
		}
	}
	count := 0
	for _, samples := range p.SamplesOf(node) {
		count += samples.Count()
	}
	return float64(count) / float64(p.Data.GlobalBatch)
}

// validateWeights checks that the weights, where there are any, are parts of the whole.
func (p *Plan) validateWeights() error {
	const rounding = 1e-9
	total, said := 0.0, 0
	for _, pipeline := range p.Pipelines {
		total += pipeline.Weight
		if pipeline.Weight > 0 {
			said++
		}
	}
	if said > 0 && (said < len(p.Pipelines) || math.Abs(total-1) > rounding) {
		return fmt.Errorf("pipelines: expected a weight of each and 1 in all, got %d and %v", said, total)
	}
	return nil
}

// validateSamples checks that the pipelines train each sample of the global batch once, and that the nodes that
// stand in for a lost one train each of its samples once.
func (p *Plan) validateSamples() error {
	dealt, taken := p.Dealt(), map[string]int{} // micro-batches, by the lost node
	for _, reroute := range p.Reroutes {
		taken[reroute.From] += reroute.MicroBatches
	}
	for i, pipeline := range p.Pipelines {
		if want := dealt.Pipelines[i].Samples; pipeline.Samples != (Range{}) && pipeline.Samples != want {
			return fmt.Errorf("pipelines[%d].samples: expected %v, behind those of the pipelines before, got %v",
				i, want, pipeline.Samples)
		}
		for _, stage := range pipeline.Stages {
			if count, isLost := taken[stage.Node]; isLost && count != pipeline.MicroBatches {
				return fmt.Errorf("reroutes: expected all %d micro-batches of %s, got %d", pipeline.MicroBatches, stage.Node, count)
			}
		}
	}
	for i, reroute := range p.Reroutes {
		if want := dealt.Reroutes[i].Samples; reroute.Samples != (Range{}) && reroute.Samples != want {
			return fmt.Errorf("reroutes[%d].samples: expected %v, behind those of the reroutes before, got %v",
				i, want, reroute.Samples)
		}
	}
	return nil
}

// SamplesAt returns the position in the data after so many completed steps, if they were all trained under this
// plan from its resumeStep on.
func (p *Plan) SamplesAt(step uint64) uint64 {
	return p.Data.ConsumedSamples + (step-p.ResumeStep)*uint64(p.Data.GlobalBatch)
}

// ScaleAt returns what the learning rate is multiplied by in the step after so many completed ones.
func (p *Plan) ScaleAt(step uint64) float64 {
	scale, warm := p.LearningRateScale, p.WarmUp
	if scale == 0 {
		scale = 1
	}
	switch {
	case warm == nil || step >= warm.FirstStep+uint64(warm.Steps):
		return scale
	case step < warm.FirstStep:
		return warm.FromScale
	}
	return warm.FromScale + (scale-warm.FromScale)*float64(step-warm.FirstStep+1)/float64(warm.Steps)
}
