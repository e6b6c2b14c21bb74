package place

import (
	"slices"

	"github.com/reknit/reknit/services/planner/estimate"
)

// Communication is what is said in a step on an unequal network, for places of any shape.
type Communication struct {
	Network         Network
	GradientBytes   []float64 // per layer
	ActivationBytes float64   // of a micro-batch between two stages, each way
	// Rounds says how often a transfer, there and back, delays a step of pipelines of a length.
	Rounds              func(length int) float64
	FetchBytesPerSecond float64
	HorizonSteps        float64 // how many steps the plan is expected to last
	Moves               int     // effort
}

// Refine swaps nodes so that the slowest exchange of gradients (DT-FM eq. 2), the slowest chain of transfers (eq. 4),
// and the time of the largest fetch spread over the horizon take least together. Its figures are a guide only: a
// transfer counts as often as Rounds says, whatever the schedule hides. It is never worse than the start by that
// measure. The links of all pairs are in memory: for hundreds of nodes, not for thousands.
func (p Problem) Refine(start Assignment, c Communication) Assignment {
	t := newTraffic(p.Places, len(p.Holds), c.GradientBytes, c.Rounds)
	nodeOf, used := make([]int, len(p.Holds)), make([]bool, len(p.Holds))
	idle := len(p.Places)
	copy(nodeOf, start.NodeOf)
	for _, node := range start.NodeOf {
		used[node] = true
	}
	for node := range used {
		if !used[node] {
			nodeOf[idle] = node
			idle++
		}
	}
	l := newLayout(t, newLinks(c.Network), c.ActivationBytes, p.moving(t, c), nodeOf)
	a := newAnnealing(l)
	if p.NeedBytes != nil && p.MemoryBytes != nil {
		a.fits = p.fits
	}
	starts := slices.DeleteFunc(a.starts(a.isThorough(c.Moves)), func(nodeOf []int) bool { return !p.allFit(nodeOf) })
	a.search(append([][]int{slices.Clone(nodeOf)}, starts...), c.Moves)
	return p.result(a.best)
}

// starts are layouts in which near nodes share pipelines; if they are to be many, from several first nodes, and others in which near
// nodes share groups, or groups have like shares of sites.
func (a *annealing) starts(many bool) (starts [][]int) {
	l := a.layout
	if !many {
		return [][]int{l.nearest(0)} // places go by pipelines, so near nodes share them
	}
	for _, first := range [3]int{0, 1, 2} {
		starts = append(starts, l.nearest(first*len(l.nodeOf)/3))
	}
	return append(append(starts, l.packed(a.chains), l.packed(l.traffic.columns)), l.mixed()...)
}

func (p Problem) allFit(nodeOf []int) bool {
	for seat, node := range nodeOf {
		if !p.fits(node, seat) {
			return false
		}
	}
	return true
}

// moving is nil where nobody holds anything, and all must fetch alike.
func (p Problem) moving(t *traffic, c Communication) *moving {
	if !slices.ContainsFunc(p.Holds, func(layers estimate.Range) bool { return layers.Len() > 0 }) {
		return nil
	}
	m := &moving{horizon: max(1, c.HorizonSteps), column: t.column, at: make([]float64, len(p.Holds))}
	for node := range p.Holds {
		seconds := make([]float64, len(t.columns))
		for column, seats := range t.columns {
			seconds[column] = float64(p.missing(node, seats[0])) / c.FetchBytesPerSecond
		}
		m.fetch = append(m.fetch, seconds)
	}
	return m
}

// nearest orders the nodes so that each is followed by the nearest of those left. O(nodes^2).
func (l *layout) nearest(first int) []int {
	order := []int{first}
	used := make([]bool, l.links.nodes)
	used[first] = true
	for len(order) < len(used) {
		best, from := -1, l.links.row(order[len(order)-1])
		for node := range used {
			if !used[node] && (best < 0 || l.hopOver(from[node]) < l.hopOver(from[best])) {
				best = node
			}
		}
		used[best] = true
		order = append(order, best)
	}
	return order
}
