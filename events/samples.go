package events

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Deal gives each pipeline its samples of a step's global batch, and those of a lost node, at each of its layers, to the
// nodes that stand in for it: one behind the other, in the plan's order.
func (p *Plan) Deal() {
	next, reroutes := 0, p.reroutesOf()
	var holds map[string]Range
	if len(reroutes) > 0 {
		holds = p.HoldsOfAll()
	}
	for i := range p.Pipelines {
		pipeline := &p.Pipelines[i]
		pipeline.Samples = Range{next, next + pipeline.MicroBatches*p.Data.MicroBatch}
		next = pipeline.Samples.End
		for _, stage := range pipeline.Stages {
			p.dealLost(reroutes[stage.Node], holds, stage, pipeline.Samples.First)
		}
	}
}

// dealLost gives the samples from first on to the reroutes of a lost stage, which are told by their indices. O(layers of all).
func (p *Plan) dealLost(reroutes []int, holds map[string]Range, stage Stage, first int) {
	taken := make(map[int]int, stage.Layers.Count()*min(1, len(reroutes))) // samples, by layer
	for _, at := range reroutes {
		reroute := &p.Reroutes[at]
		layers, samples := reroute.at(stage.Layers, holds[reroute.To]), reroute.MicroBatches*p.Data.MicroBatch
		from := first + taken[layers.First]
		reroute.Samples = Range{from, from + samples}
		for layer := layers.First; layer < layers.End; layer++ {
			taken[layer] += samples
		}
	}
}

// at is the layers that a reroute takes over of a lost stage, by what the other node holds.
func (r Reroute) at(lost, held Range) Range {
	both := shared(lost, held)
	if r.Layers != (Range{}) {
		both = shared(both, r.Layers)
	}
	return both
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
// nodes that it stands in for at any layer. O(places and reroutes).
func (p *Plan) SamplesOf(node string) []Range {
	return p.samplesOf(node, func(Range) bool { return true })
}

// SamplesAtLayer returns which of its samples a node trains at a layer.
func (p *Plan) SamplesAtLayer(node string, layer int) []Range {
	return p.samplesOf(node, func(layers Range) bool { return layers.First <= layer && layer < layers.End })
}

func (p *Plan) samplesOf(node string, counts func(layers Range) bool) []Range {
	var own, others []Range
	next, isLost := 0, slices.ContainsFunc(p.Reroutes, func(reroute Reroute) bool { return reroute.From == node })
	for _, pipeline := range p.Pipelines {
		dealt := Range{next, next + pipeline.MicroBatches*p.Data.MicroBatch}
		next = dealt.End
		for _, stage := range pipeline.Stages {
			if stage.Node == node && !isLost && counts(stage.Layers) {
				own = append(own, dealt)
			}
		}
	}
	if len(p.Reroutes) == 0 {
		return own
	}
	holds := p.HoldsOfAll()
	for _, reroute := range p.Dealt().Reroutes {
		if reroute.To == node && counts(reroute.at(holds[reroute.From], holds[node])) {
			others = append(others, reroute.Samples)
		}
	}
	return append(own, joined(others)...)
}

// joined is ranges in order, those that overlap as one: a sample may pass layers of a node twice.
func joined(ranges []Range) []Range {
	slices.SortFunc(ranges, func(a, b Range) int { return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(a.End, b.End)) })
	var list []Range
	for _, next := range ranges {
		if last := len(list) - 1; last >= 0 && next.First < list[last].End {
			list[last].End = max(list[last].End, next.End)
			continue
		}
		list = append(list, next)
	}
	return list
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
// stand in for a lost one train each of its samples once at each of its layers.
func (p *Plan) validateSamples() error {
	dealt := p.Dealt()
	for i, pipeline := range p.Pipelines {
		if want := dealt.Pipelines[i].Samples; pipeline.Samples != (Range{}) && pipeline.Samples != want {
			return fmt.Errorf("pipelines[%d].samples: expected %v, behind those of the pipelines before, got %v",
				i, want, pipeline.Samples)
		}
	}
	for i, reroute := range p.Reroutes {
		if want := dealt.Reroutes[i].Samples; reroute.Samples != (Range{}) && reroute.Samples != want {
			return fmt.Errorf("reroutes[%d].samples: expected %v, behind those of the reroutes before, got %v",
				i, want, reroute.Samples)
		}
	}
	return p.validateTakers()
}

// validateTakers checks that each micro-batch of a lost stage has one taker at each of its layers, and that a reroute is of the
// same ones at all of its layers. It takes no longer than micro-batches times layers: with more it fails.
func (p *Plan) validateTakers() error {
	reroutes := p.reroutesOf()
	if len(reroutes) == 0 {
		return nil
	}
	holds := p.HoldsOfAll()
	for _, pipeline := range p.Pipelines {
		for _, stage := range pipeline.Stages {
			if of := reroutes[stage.Node]; len(of) > 0 {
				if err := p.validateLost(of, holds, stage, pipeline.MicroBatches); err != nil {
					return fmt.Errorf("reroutes: %w", err)
				}
			}
		}
	}
	return nil
}

func (p *Plan) validateLost(reroutes []int, holds map[string]Range, stage Stage, microBatches int) error {
	taken := make([]int, stage.Layers.Count())
	for _, at := range reroutes {
		reroute := p.Reroutes[at]
		layers := reroute.at(stage.Layers, holds[reroute.To])
		if layers.Count() < 1 {
			return fmt.Errorf("[%d]: expected layers of %v that %s holds, got %v", at, stage.Layers, reroute.To, reroute.Layers)
		}
		before := taken[layers.First-stage.Layers.First]
		for layer := layers.First; layer < layers.End; layer++ {
			count := &taken[layer-stage.Layers.First]
			if *count != before {
				return fmt.Errorf("expected the same micro-batches of %s at all layers of a reroute to %s, got those from %d on and from %d on",
					stage.Node, reroute.To, before, *count)
			}
			if *count += reroute.MicroBatches; *count > microBatches {
				return fmt.Errorf("expected the %d micro-batches of %s at layer %d, got more", microBatches, stage.Node, layer)
			}
		}
	}
	for i, count := range taken {
		if count != microBatches {
			return fmt.Errorf("expected all %d micro-batches of %s at layer %d, got %d", microBatches, stage.Node,
				stage.Layers.First+i, count)
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
