package place

import (
	"fmt"
	"math"
	"slices"

	"github.com/reknit/reknit/services/planner/estimate"
)

// Grid is DT-FM's problem: equal pipelines of equal stages on an unequal network, a device for each.
type Grid struct {
	Network           Network
	Pipelines, Stages int
	GradientBytes     float64 // of a stage, in a step
	ActivationBytes   float64 // that a pipeline sends over a boundary, each way, in a step
	Previous          [][]int // by stage, by pipeline: the device that holds it; nil: nobody holds anything
	StateBytes        float64 // of a stage: what a device without it must fetch
	HorizonSteps      float64 // how many steps a layout is expected to last; 0: moving is free
}

// Effort bounds a search in steps, so that it has the same answer on any machine. For 64 devices 1,000,000
// mixtures take about half a second, and 200,000 moves too where devices are all different, a fifth where they are not.
type Effort struct {
	Moves    int // of the annealing; twice as many where devices do not fall into few classes
	Mixtures int // that the proof looks at
}

// Placement is who sits where, and what that costs in a step.
type Placement struct {
	Groups              [][]int // by stage, by pipeline: the device
	DataParallelSeconds float64
	PipelineSeconds     float64
	MigrationSeconds    float64 // until the last device has fetched what it lacks, from the nearest holder
	LowerBoundSeconds   float64 // no layout has less of the first two together
	Optimal             bool    // the bound is reached, and so it is proven
	horizon             float64
}

// CommunicationSeconds is DT-FM's cost of a step.
func (p Placement) CommunicationSeconds() float64 { return p.DataParallelSeconds + p.PipelineSeconds }

// Seconds is the communication until the horizon, and the move.
func (p Placement) Seconds() float64 {
	return p.CommunicationSeconds()*max(1, p.horizon) + p.MigrationSeconds
}

// Place finds a layout of least CommunicationSeconds: by annealing, and where devices fall into few classes (equal links
// to all) by exact searches too: of all layouts, which then tells how far from the best it can be, and where that is too
// much, of those whose path is three runs of equal groups. Where moving costs something it goes on from there, and from
// the previous layout, to one of least Seconds: never more than staying, or than that move.
func (g Grid) Place(effort Effort) (Placement, error) {
	if err := g.check(); err != nil {
		return Placement{}, err
	}
	l := g.layout()
	moving, previous := l.moving, slices.Clone(l.nodeOf)
	l.moving = nil
	a := newAnnealing(l, brisk)
	bound := g.cheapest(a, effort)
	if moving == nil {
		return g.result(a, bound), nil
	}
	l.moving = moving
	a.least = math.Inf(1)
	a.search([][]int{previous, slices.Clone(a.best)}, effort.Moves/4)
	return g.result(a, bound), nil
}

// cheapest leaves the layout of least communication in the annealing and returns a lower bound on it.
func (g Grid) cheapest(a *annealing, effort Effort) float64 {
	starts, exact := g.starts(a.layout), newRuns(a.layout, a.links.classes())
	a.search(starts, effort.Moves/8)
	proven := exact != nil && a.exactly(exact, g.Stages, effort.Mixtures/2)
	if !proven {
		if exact != nil {
			a.exactly(exact, fewRuns, aMove*effort.Moves)
		}
		a.search(starts, effort.Moves-effort.Moves/8)
	}
	if exact == nil {
		a.take(starts[0]) // what the other pace found must not lead this one
		again := newAnnealing(a.layout, thorough)
		again.search(starts, effort.Moves)
		a.take(again.best)
	}
	a.take(a.best)
	switch {
	case proven:
		return a.communication()
	case exact != nil:
		return exact.refuted(a.floor(), a.communication(), g.Stages, effort.Mixtures/2)
	}
	return a.floor()
}

const (
	fewRuns = 3
	// aMove is how many mixtures are looked at in the time of a move, where most do not go into so few runs.
	aMove = 12
)

// Cost is what a layout, by stage and by pipeline, costs as it is.
func (g Grid) Cost(groups [][]int) Placement {
	a := newAnnealing(g.layout(), brisk)
	a.take(slices.Concat(groups...))
	return g.result(a, 0)
}

func (g Grid) check() error {
	devices := g.Pipelines * g.Stages
	switch {
	case g.Pipelines < 1 || g.Stages < 1:
		return fmt.Errorf("place: expected at least one pipeline and stage, got %d and %d", g.Pipelines, g.Stages)
	case len(g.Network.DelaySeconds) != devices || len(g.Network.BytesPerSecond) != devices:
		return fmt.Errorf("place: expected links of %d devices, got %d", devices, len(g.Network.DelaySeconds))
	case g.Previous != nil && len(g.Previous) != g.Stages:
		return fmt.Errorf("place: expected a previous layout of %d stages, got %d", g.Stages, len(g.Previous))
	}
	return nil
}

func (g Grid) layout() *layout {
	var places []Place
	gradients := make([]float64, g.Stages)
	for stage := range g.Stages {
		gradients[stage] = g.GradientBytes
		for pipeline := range g.Pipelines {
			places = append(places, Place{pipeline, stage, estimate.Range{First: stage, End: stage + 1}})
		}
	}
	t := newTraffic(places, len(places), gradients, func(int) float64 { return 1 })
	links, nodeOf := newLinks(g.Network), make([]int, len(places))
	for i := range nodeOf {
		nodeOf[i] = i
	}
	var m *moving
	if g.Previous != nil {
		nodeOf = slices.Concat(g.Previous...)
		if g.HorizonSteps > 0 {
			m = &moving{horizon: g.HorizonSteps, fetch: g.fetch(links), column: t.column, at: make([]float64, len(places))}
		}
	}
	return newLayout(t, links, g.ActivationBytes, m, nodeOf)
}

// fetch is the seconds in which a device has a stage from the nearest of its holders, by device and stage.
func (g Grid) fetch(links *links) [][]float64 {
	fetch := make([][]float64, links.nodes)
	for device := range fetch {
		fetch[device] = make([]float64, g.Stages)
		for stage, holders := range g.Previous {
			fetch[device][stage] = math.Inf(1)
			for _, holder := range holders {
				seconds := 0.0
				if holder != device {
					link := links.row(holder)[device]
					seconds = link.delay + g.StateBytes*link.perByte
				}
				fetch[device][stage] = min(fetch[device][stage], seconds)
			}
		}
	}
	return fetch
}

// starts are the layout as it is, and clusters of near devices as pipelines, from several first devices, and as groups.
func (g Grid) starts(l *layout) [][]int {
	starts := [][]int{slices.Clone(l.nodeOf)}
	for k := range 3 {
		order := l.nearest(k * l.links.nodes / 3)
		pipelines := make([]int, len(order))
		for seat := range pipelines {
			pipelines[seat] = order[seat%g.Pipelines*g.Stages+seat/g.Pipelines]
		}
		starts = append(starts, pipelines)
		if k == 0 {
			starts = append(starts, order)
		}
	}
	return starts
}

func (g Grid) result(a *annealing, bound float64) Placement {
	result := Placement{horizon: g.HorizonSteps}
	for stage := range g.Stages {
		result.Groups = append(result.Groups, slices.Clone(a.members(stage)))
	}
	result.DataParallelSeconds, result.PipelineSeconds = a.parts()
	if a.moving != nil {
		result.MigrationSeconds = a.moving.slowest()
	}
	cost := result.CommunicationSeconds()
	result.LowerBoundSeconds = min(cost, bound)
	result.Optimal = bound >= cost*(1-exactness)
	return result
}

// exactness is how close sums of the same seconds in another order are taken to be equal.
const exactness = 1e-9
