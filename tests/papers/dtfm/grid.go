package dtfm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/reknit/reknit/services/planner/estimate"
	"github.com/reknit/reknit/services/planner/place"
)

// Grid is DT-FM's problem: equal pipelines of equal stages on an unequal network, a device for each.
type Grid struct {
	Network           place.Network
	Pipelines, Stages int
	GradientBytes     float64 // of a stage, in a step
	ActivationBytes   float64 // that a pipeline sends over a boundary, each way, in a step
	Previous          [][]int // by stage, by pipeline: the device that holds it; nil: nobody holds anything
	StateBytes        float64 // of a stage: what a device without it must fetch
	HorizonSteps      float64 // how many steps a layout is expected to last; 0: moving is free
}

// Effort bounds a search in steps, so that it has the same answer on any machine.
type Effort struct {
	Moves    int // of the planner's annealing
	Mixtures int // that the exact searches look at
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

// Seconds is the communication until the horizon, and the move; of one step where moving is free.
func (p Placement) Seconds() float64 {
	if p.horizon == 0 {
		return p.CommunicationSeconds()
	}
	return p.CommunicationSeconds()*p.horizon + p.MigrationSeconds
}

// Place finds a layout of least CommunicationSeconds. The planner's search finds one. An exact search of all layouts
// then proves it best, or tells how far from the best it can be, if devices fall into few classes (equal links to all).
// A search of the layouts whose path is three runs of equal groups finds better ones if that takes too long.
//
// The planner's search then goes on from that layout and from the previous one to a layout of least Seconds, if moving
// costs something: never more than staying, or than that move.
func (g Grid) Place(effort Effort) (Placement, error) {
	if err := g.check(); err != nil {
		return Placement{}, err
	}
	free := g
	free.Previous = nil
	groups, bound := free.cheapest(effort)
	if g.Previous != nil && g.HorizonSteps > 0 {
		groups = g.refined([][][]int{g.Previous, groups}, effort.Moves/4)
	}
	placed := g.Layout(groups)
	placed.LowerBoundSeconds = min(placed.CommunicationSeconds(), bound)
	placed.Optimal = bound >= placed.CommunicationSeconds()*(1-exactness)
	return placed, nil
}

// cheapest is the layout of least communication found, and a lower bound on all.
func (g Grid) cheapest(effort Effort) (groups [][]int, bound float64) {
	exact := newExact(g)
	if exact == nil {
		return g.restarted(effort.Moves), g.floor()
	}
	groups, proven := g.exactly(exact, g.Stages, g.refined(g.starts(), effort.Moves/8), effort.Mixtures/2)
	if proven {
		return groups, g.Layout(groups).CommunicationSeconds()
	}
	groups, _ = g.exactly(exact, fewRuns, groups, aMove*effort.Moves)
	groups = g.refined(append(g.starts(), groups), effort.Moves-effort.Moves/8)
	cost := g.Layout(groups).CommunicationSeconds()
	return groups, exact.refuted(g.floor(), cost, effort.Mixtures/2)
}

// restarted refines the usual starts, then the best again and again while that helps, and at last some random layouts.
func (g Grid) restarted(moves int) (best [][]int) {
	best = g.refined(g.starts(), moves)
	for range restarts {
		again := g.refine(best, moves/restarts)
		if g.Layout(again).Seconds() >= g.Layout(best).Seconds() {
			break
		}
		best = again
	}
	starts, random := [][][]int{best}, rand.New(rand.NewPCG(1, 1))
	for range restarts {
		starts = append(starts, g.inGroups(random.Perm(g.devices())))
	}
	return g.refined(starts, moves)
}

const restarts = 4

const (
	fewRuns = 3
	// aMove is how many mixtures are looked at in the time of a move, where most do not go into so few runs.
	aMove = 12
)

// exactness is how close sums of the same seconds in another order are taken to be equal.
const exactness = 1e-9

// refined is the cheapest of some layouts and of what the planner's search makes of each, so many moves altogether.
func (g Grid) refined(layouts [][][]int, moves int) (best [][]int) {
	least := math.Inf(1)
	take := func(groups [][]int) {
		if seconds := g.Layout(groups).Seconds(); seconds < least {
			best, least = groups, seconds
		}
	}
	for _, groups := range layouts {
		take(groups)
		take(g.refine(groups, moves/(len(layouts)+1)))
	}
	take(g.refine(best, moves/(len(layouts)+1)))
	return best
}

// refine has the planner improve a layout.
func (g Grid) refine(groups [][]int, moves int) [][]int {
	problem, start := g.problem(), place.Assignment{}
	for seat := range problem.Places {
		start.NodeOf = append(start.NodeOf, groups[problem.Places[seat].Stage][problem.Places[seat].Pipeline])
	}
	refined := problem.Refine(start, place.Communication{
		Network: g.Network, GradientBytes: slices.Repeat([]float64{g.GradientBytes}, g.Stages),
		ActivationBytes: g.ActivationBytes, Rounds: func(int) float64 { return 1 },
		FetchBytesPerSecond: g.usualBytesPerSecond(), HorizonSteps: g.HorizonSteps, Moves: moves,
	})
	laid := make([][]int, g.Stages)
	for seat, device := range refined.NodeOf {
		stage := problem.Places[seat].Stage
		laid[stage] = append(laid[stage], device)
	}
	return laid
}

// problem is the grid as the planner has it: a layer for each stage, places pipeline by pipeline.
func (g Grid) problem() place.Problem {
	p := place.Problem{
		Holds: make([]estimate.Range, g.devices()), LayerBytes: slices.Repeat([]int64{int64(g.StateBytes)}, g.Stages),
	}
	for pipeline := range g.Pipelines {
		for stage := range g.Stages {
			layers := estimate.Range{First: stage, End: stage + 1}
			p.Places = append(p.Places, place.Place{Pipeline: pipeline, Stage: stage, Layers: layers})
		}
	}
	for stage, group := range g.Previous {
		for _, device := range group {
			p.Holds[device] = estimate.Range{First: stage, End: stage + 1}
		}
	}
	return p
}

// usualBytesPerSecond is the median link.
func (g Grid) usualBytesPerSecond() float64 {
	var rates []float64
	for a, row := range g.Network.BytesPerSecond {
		rates = append(rates, row[:a]...)
	}
	if len(rates) == 0 {
		return 1
	}
	slices.Sort(rates)
	return rates[len(rates)/2]
}

func (g Grid) devices() int { return g.Pipelines * g.Stages }

// Layout is what a layout, by stage and by pipeline, costs as it is.
func (g Grid) Layout(groups [][]int) Placement {
	p := Placement{Groups: groups, DataParallelSeconds: g.exchangeSeconds(groups), horizon: g.HorizonSteps}
	for stage := range groups[1:] {
		slowest := 0.0
		for pipeline, device := range groups[stage] {
			slowest = max(slowest, g.hopSeconds(device, groups[stage+1][pipeline]))
		}
		p.PipelineSeconds += slowest
	}
	if g.Previous == nil {
		return p
	}
	for stage, group := range groups {
		for _, device := range group {
			p.MigrationSeconds = max(p.MigrationSeconds, g.fetchSeconds(device, g.Previous[stage]))
		}
	}
	return p
}

// fetchSeconds is the time in which a device has a stage from the nearest of its holders.
func (g Grid) fetchSeconds(device int, holders []int) float64 {
	least := math.Inf(1)
	for _, holder := range holders {
		if holder == device {
			return 0
		}
		least = min(least, g.seconds(holder, device, g.StateBytes))
	}
	return least
}

func (g Grid) check() error {
	switch {
	case g.Pipelines < 1 || g.Stages < 1:
		return fmt.Errorf("dtfm: expected at least one pipeline and stage, got %d and %d", g.Pipelines, g.Stages)
	case len(g.Network.DelaySeconds) != g.devices() || len(g.Network.BytesPerSecond) != g.devices():
		return fmt.Errorf("dtfm: expected links of %d devices, got %d", g.devices(), len(g.Network.DelaySeconds))
	case g.Previous != nil && len(g.Previous) != g.Stages:
		return fmt.Errorf("dtfm: expected a previous layout of %d stages, got %d", g.Stages, len(g.Previous))
	}
	return nil
}

// starts are the devices in their order, and clusters of near devices as groups and as pipelines, from several first
// devices.
func (g Grid) starts() [][][]int {
	var order []int
	for device := range g.devices() {
		order = append(order, device)
	}
	starts := [][][]int{g.inGroups(order)}
	for k := range 3 {
		near := g.nearest(k * g.devices() / 3)
		pipelines := make([]int, len(near))
		for i, device := range near {
			pipelines[i%g.Stages*g.Pipelines+i/g.Stages] = device
		}
		if k == 0 {
			starts = append(starts, g.inGroups(near))
		}
		starts = append(starts, g.inGroups(pipelines))
	}
	return starts
}

// inGroups is an order of devices as one group after the other.
func (g Grid) inGroups(order []int) (groups [][]int) {
	for stage := range g.Stages {
		groups = append(groups, slices.Clone(order[stage*g.Pipelines:(stage+1)*g.Pipelines]))
	}
	return groups
}

// nearest orders the devices so that each is followed by the nearest of those left. O(devices^2).
func (g Grid) nearest(first int) []int {
	order, used := []int{first}, make([]bool, g.devices())
	used[first] = true
	for len(order) < len(used) {
		best, from := -1, order[len(order)-1]
		for device := range used {
			if !used[device] && (best < 0 || g.hopSeconds(from, device) < g.hopSeconds(from, best)) {
				best = device
			}
		}
		used[best] = true
		order = append(order, best)
	}
	return order
}

// embedded puts groups into their best order and pairs their devices in the best way.
func (g Grid) embedded(groups [][]int) [][]int {
	_, order := place.ShortestPath(g.edges(groups))
	var laid [][]int
	for stage, at := range order {
		group := groups[at]
		if stage > 0 {
			_, partner := g.paired(laid[stage-1], group)
			ordered := make([]int, len(group))
			for i, j := range partner {
				ordered[i] = group[j]
			}
			group = ordered
		}
		laid = append(laid, group)
	}
	return laid
}
