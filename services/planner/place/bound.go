package place

import (
	"cmp"
	"math"
	"slices"
)

// floor is a lower bound on the cost of a step of any layout of a grid, from each device's nearest links and from the
// components of the network. O(devices^2 log devices).
func (l *layout) floor() float64 { return l.leastLoad() + l.leastHops() }

// leastLoad: every device exchanges with as many others as there are pipelines beside its own, at best the nearest.
func (l *layout) leastLoad() float64 {
	least := 0.0
	peers, perPeer := len(l.columns[0])-1, l.perPeer()
	for node := range l.links.nodes {
		var loads []float64
		for other, link := range l.links.row(node) {
			if other != node {
				loads = append(loads, perPeer.over(link))
			}
		}
		slices.Sort(loads)
		own := 0.0
		for _, seconds := range loads[:peers] {
			own += seconds
		}
		least = max(least, own)
	}
	return least
}

// leastHops: with links of at most some seconds, c components of the network leave at least c pieces of pipelines, so
// c - pipelines links between stages are slower, no more than one a pipeline at one boundary. Summed up over all values,
// that bounds the sum of the slowest ones (Kruskal's spanning tree has the components).
func (l *layout) leastHops() float64 {
	type edge struct {
		a, b    int
		seconds float64
	}
	var all []edge
	for a := range l.links.nodes {
		for b, link := range l.links.row(a)[:a] {
			all = append(all, edge{a, b, l.hopOver(link)})
		}
	}
	slices.SortFunc(all, func(a, b edge) int { return cmp.Compare(a.seconds, b.seconds) })
	pipelines := len(l.columns[0])
	component, components := make([]int, l.links.nodes), l.links.nodes
	for node := range component {
		component[node] = node
	}
	least, before := 0.0, 0.0
	for _, e := range all {
		from, to := component[e.a], component[e.b]
		if from == to {
			continue
		}
		least += (e.seconds - before) * math.Ceil(max(0, float64(components-pipelines))/float64(pipelines))
		before = e.seconds
		components--
		for node, c := range component {
			if c == from {
				component[node] = to
			}
		}
	}
	return least
}

// exactly looks for a layout of so many runs at most that is cheaper than the best and takes it; it reports whether none
// is cheaper then.
func (a *annealing) exactly(r *runs, most, mixtures int) (proven bool) {
	proven = r.ofFew(most, a.least*(1-exactness), len(a.columns), mixtures)
	if r.best == nil {
		return proven
	}
	used := make([]int, len(r.classes))
	var groups []int
	for _, run := range r.best {
		for range run.groups {
			for class, count := range r.mixtures[run.mixture].counts {
				groups = append(groups, r.classes[class][used[class]:used[class]+count]...)
				used[class] += count
			}
		}
	}
	a.take(groups)
	if a.embed() {
		a.keep()
	}
	return proven
}

// refuted is the largest cost found, so many mixtures being looked at, below which no layout is. It is between the two.
func (r *runs) refuted(low, high float64, groups, mixtures int) float64 {
	const attempts = 8
	for range attempts {
		middle := (low + high) / 2
		if r.cheaper(middle, groups, mixtures/attempts) && r.best == nil {
			low = middle
		} else {
			high = middle
		}
	}
	return low
}
