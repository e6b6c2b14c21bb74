// Package search finds the plan with the smallest step time: how many pipelines, how long each, which layers on which
// stage and how many micro-batches for whom (Chameleon IV-C, Algorithm 1). The paper enumerates; this search is exact
// over all mixes of lengths, all distributions of the batch and all contiguous splits, because equal pipelines are
// interchangeable and a plan is therefore only a count per length.
//
// Nodes are alike here: same speed, same memory, same links. Package place decides who sits where.
package search

import (
	"errors"
	"fmt"
	"math"

	"github.com/reknit/reknit/services/planner/estimate"
)

// ErrInfeasible is returned, wrapped with the limit that excluded everything, where no plan exists.
var ErrInfeasible = errors.New("no plan exists")

// Limits bounds a degree; 0 leaves that side free.
type Limits struct{ Least, Most int }

// Family is the set of layer splits that may be used.
type Family int

const (
	// Contiguous is every split into contiguous non-empty stages.
	Contiguous Family = iota
	// Even is the paper's family: stages differ by one layer at most, the larger ones anywhere.
	Even
)

// Problem is what to plan for.
type Problem struct {
	Nodes           int
	NodeMemoryBytes int64 // what a node may fill; 0 means no limit
	Layers          []estimate.Layer
	Shares          []Share // what the layers are in narrow plans instead, by Pipelines, ascending
	MicroBatches    int     // of all pipelines together, in one step
	TransferSeconds float64 // of one micro-batch over one stage edge, each direction
	DataParallel    Limits  // pipelines
	PipelineLength  Limits  // stages of a pipeline
	MinReplicas     int     // fewer pipelines are used only where nothing else is possible; 0 means 1
	EveryNode       bool    // leave no node idle, even where that would be as fast or faster
	Splits          Family
	AllReduce       AllReduce
	// Floor is what so many pipelines take at least, without all-reduces, by what is known of the nodes beside what is alike
	// here. The lower bound counts it, the plans do not. Nil: nothing.
	Floor   func(pipelines int) (seconds float64)
	Below   float64 // only plans that take less are looked for; 0: all
	Roughly bool    // a plan within a few percent of the best is good enough: what is alike here is not quite
}

// Pipeline is one pipeline of a plan: its share of the batch and the layers of its stages.
type Pipeline = estimate.Member

// Plan is a feasible plan with its figures.
type Plan struct {
	Pipelines   []Pipeline // by length, then by share, both ascending; pipelines of one length share one split
	StepSeconds float64    // of the slowest pipeline, and of the all-reduces behind it
}

// Nodes is the number of nodes the plan uses.
func (p Plan) Nodes() int {
	nodes := 0
	for _, pipeline := range p.Pipelines {
		nodes += len(pipeline.Stages)
	}
	return nodes
}

// Result is the best plan with its proof and its rivals.
type Result struct {
	Plan
	// No plan of the data-parallel degrees weighed is faster than this. It is equal to StepSeconds unless a split search
	// ran into its effort limit, or was to search roughly.
	LowerBoundSeconds float64
	// The answer, and the best plans found for the most promising other data-parallel degrees, best first.
	Considered []Plan
}

// Weighed is how many data-parallel degrees come back in Result.Considered at most.
const Weighed = 8

// normalised checks the problem and replaces free limits by what the layers, nodes and micro-batches allow.
func (p Problem) normalised() (Problem, error) {
	if err := p.check(); err != nil {
		return p, fmt.Errorf("search: %w", err)
	}
	if p.NodeMemoryBytes == 0 {
		p.NodeMemoryBytes = math.MaxInt64
	}
	if p.Below == 0 {
		p.Below = never
	}
	p.MinReplicas = max(1, p.MinReplicas)
	p.PipelineLength = p.PipelineLength.within(min(len(p.Layers), p.Nodes))
	p.DataParallel = p.DataParallel.within(min(p.MicroBatches, p.Nodes/max(1, p.PipelineLength.Least)))
	return p, p.checkLimits()
}

func (l Limits) within(most int) Limits {
	if l.Most == 0 {
		l.Most = most
	}
	return Limits{max(1, l.Least), min(l.Most, most)}
}

func (p Problem) check() error {
	for _, number := range []struct {
		field string
		value int
		least int
	}{
		{"nodes", p.Nodes, 1},
		{"layers", len(p.Layers), 1},
		{"microBatches", p.MicroBatches, 1},
		{"dataParallel.least", p.DataParallel.Least, 0},
		{"dataParallel.most", p.DataParallel.Most, 0},
		{"pipelineLength.least", p.PipelineLength.Least, 0},
		{"pipelineLength.most", p.PipelineLength.Most, 0},
		{"minReplicas", p.MinReplicas, 0},
	} {
		if number.value < number.least {
			return fmt.Errorf("%s is %d, expected at least %d", number.field, number.value, number.least)
		}
	}
	if p.NodeMemoryBytes < 0 {
		return fmt.Errorf("nodeMemoryBytes is %d, expected at least 0", p.NodeMemoryBytes)
	}
	if !(p.Below >= 0) {
		return fmt.Errorf("below is %v, expected at least 0", p.Below)
	}
	if !usable(p.TransferSeconds) {
		return fmt.Errorf("transferSeconds is %v, expected a finite number of at least 0", p.TransferSeconds)
	}
	return errors.Join(p.checkLayers(), p.AllReduce.check(len(p.Layers)))
}

func usable(seconds float64) bool { return seconds >= 0 && !math.IsInf(seconds, 1) }

// checkLimits looks for a limit that excludes everything by itself.
func (p Problem) checkLimits() error {
	width, length := p.DataParallel, p.PipelineLength
	switch {
	case length.Least > len(p.Layers):
		return fmt.Errorf("search: pipelines of at least %d stages, but there are %d layers: %w", length.Least,
			len(p.Layers), ErrInfeasible)
	case width.Least > p.MicroBatches:
		return fmt.Errorf("search: at least %d pipelines, but there are %d micro-batches: %w", width.Least,
			p.MicroBatches, ErrInfeasible)
	case max(1, width.Least)*length.Least > p.Nodes:
		return fmt.Errorf("search: %d nodes are too few for %d x %d stages (pipelines x stages of each): %w",
			p.Nodes, max(1, width.Least), length.Least, ErrInfeasible)
	case length.Least > length.Most:
		return fmt.Errorf("search: no pipeline has %d to %d stages: %w", length.Least, length.Most,
			ErrInfeasible)
	case width.Least > width.Most:
		return fmt.Errorf("search: there are no %d to %d pipelines: %w", width.Least, width.Most,
			ErrInfeasible)
	}
	return nil
}
