// Package chameleon is what the Chameleon paper says literally where the planner and the restorer do better: its
// planner (IV-C, Algorithm 1), its share of the batch (IV-B), its objective (IV-A), and its rounds of all-reduces (IV).
package chameleon

import (
	"math"
	"math/bits"

	"github.com/reknit/reknit/services/planner/estimate"
)

// Planner is Chameleon's planner as its text has it (section IV-C, Algorithm 1): all non-decreasing lengths that use up
// the nodes, with one pipeline more or less than now and lengths that differ by one from the present one; the batch in
// proportion; for each pipeline, the leftover layers on every choice of stages, each evaluated by dynamic programming.
// Nothing is remembered between pipelines.
type Planner struct {
	Layers            []estimate.Layer
	MicroBatches      int
	Shortest, Longest int // pipelines that are tried, in stages
	TransferSeconds   float64

	// Results of Find.
	Strategies  int               // lengths tried
	Evaluated   int               // splits evaluated
	StepSeconds float64           // infinite where there is no plan
	Plan        []estimate.Member // the fastest
}

// Find plans for so many nodes and from least to most pipelines.
func (l *Planner) Find(nodes, least, most int) {
	l.StepSeconds = math.Inf(1)
	for pipelines := max(1, least); pipelines <= most; pipelines++ {
		l.peel(nodes, pipelines, l.Shortest, nil)
	}
}

// peel takes one pipeline after another off the nodes.
func (l *Planner) peel(nodes, pipelines, shortest int, lengths []int) {
	if pipelines == 0 {
		if nodes == 0 {
			l.weigh(lengths)
		}
		return
	}
	for length := shortest; length <= l.Longest && length*pipelines <= nodes; length++ {
		if l.Longest*(pipelines-1) < nodes-length {
			continue
		}
		l.peel(nodes-length, pipelines-1, length, append(lengths, length))
	}
}

func (l *Planner) weigh(lengths []int) {
	if l.MicroBatches < len(lengths) {
		return
	}
	l.Strategies++
	step := 0.0
	var plan []estimate.Member
	for p, microBatches := range ProportionalBatches(l.MicroBatches, lengths) {
		stages, seconds := l.split(lengths[p], microBatches)
		plan = append(plan, estimate.Member{MicroBatches: microBatches, Stages: stages})
		step = max(step, seconds)
	}
	if step < l.StepSeconds {
		l.StepSeconds, l.Plan = step, plan
	}
}

// split tries every choice of the stages that take a leftover layer.
func (l *Planner) split(length, microBatches int) (best []estimate.Range, seconds float64) {
	each, left := len(l.Layers)/length, len(l.Layers)%length
	seconds = math.Inf(1)
	for larger := range 1 << length {
		stages, first := make([]estimate.Range, length), 0
		for s := range stages {
			stages[s] = estimate.Range{First: first, End: first + each + larger>>s&1}
			first = stages[s].End
		}
		if bits.OnesCount(uint(larger)) != left {
			continue
		}
		l.Evaluated++
		took := estimate.OneForwardOneBackward(estimate.OfLayers(l.Layers, stages, microBatches,
			l.TransferSeconds)).MakespanSeconds
		if took < seconds {
			best, seconds = stages, took
		}
	}
	return best, seconds
}
