package dtfm

import "github.com/reknit/reknit/services/planner/place/runs"

// exact is the exact search where devices fall into few classes, alike within a class.
type exact struct {
	classes [][]int // devices of each
	stages  int
	*runs.Search
}

// newExact returns nil where there are too many classes, or ways to mix them.
func newExact(g Grid) *exact {
	e := &exact{classes: g.classes(), stages: g.Stages}
	var n runs.Network
	for _, class := range e.classes {
		hops, loads := make([]float64, len(e.classes)), make([]float64, len(e.classes))
		for b, others := range e.classes {
			if one, other := class[0], others[len(others)-1]; one != other {
				hops[b], loads[b] = g.hopSeconds(one, other), g.loadSeconds(one, other)
			}
		}
		n.Devices, n.Hop, n.Load = append(n.Devices, len(class)), append(n.Hop, hops), append(n.Load, loads)
	}
	if e.Search = runs.New(n, g.Pipelines); e.Search == nil {
		return nil
	}
	return e
}

// groups seats the devices of a path.
func (e *exact) groups(path []runs.Run) (groups [][]int) {
	used := make([]int, len(e.classes))
	for _, run := range path {
		for range run.Stages {
			var group []int
			for class, count := range run.Counts {
				group = append(group, e.classes[class][used[class]:used[class]+count]...)
				used[class] += count
			}
			groups = append(groups, group)
		}
	}
	return groups
}

// refuted is the largest cost found, so many mixtures being looked at, below which no layout is. It is between the two.
func (e *exact) refuted(low, high float64, mixtures int) float64 {
	const attempts = 8
	for range attempts {
		middle := (low + high) / 2
		if path, _, proven := e.Cheaper(middle, e.stages, mixtures/attempts); proven && path == nil {
			low = middle
		} else {
			high = middle
		}
	}
	return low
}

// exactly looks for a layout of so many runs at most that is cheaper than the one there is. It returns the better one,
// and whether none is cheaper.
func (g Grid) exactly(e *exact, most int, groups [][]int, mixtures int) (better [][]int, proven bool) {
	path, _, proven := e.Cheaper(g.Layout(groups).CommunicationSeconds()*(1-exactness), most, mixtures)
	if path == nil {
		return groups, proven
	}
	return g.embedded(e.groups(path)), proven
}
