package dtfm

import (
	"cmp"
	"math"
	"slices"
)

// runs is the exact search on networks of few classes of devices, alike within a class. A group is then a number of
// devices of each class (a mixture), and the path through the groups a sequence of runs of equal mixtures. It looks for
// a path that is cheaper than limit, depth first over the runs.
type runs struct {
	classes   [][]int     // devices of each
	size      int         // of a group
	hop       [][]float64 // seconds between two devices, by class
	levels    []level
	values    []float64          // all hops, ascending
	mixtures  []mixture          // by load, ascending
	leastLoad []float64          // by class: of the mixtures that have it
	edges     map[[2]int]float64 // hops between two mixtures, as far as they were asked for

	limit  float64
	effort int
	most   int // runs of a path
	path   []run
	rests  [][mostClasses]int // what is left after each run of the path
	best   []run
}

type run struct{ mixture, groups int }

// newRuns returns nil where there are too many classes or mixtures.
func newRuns(g Grid) *runs {
	r := &runs{classes: g.classes(), size: g.Pipelines, edges: map[[2]int]float64{}}
	if len(r.classes) > mostClasses || r.count(0, r.size) > mostMixtures {
		return nil
	}
	load := make([][]float64, len(r.classes))
	for a, class := range r.classes {
		r.hop, load[a] = append(r.hop, make([]float64, len(r.classes))), make([]float64, len(r.classes))
		for b, others := range r.classes {
			one, other := class[0], others[0]
			if a == b {
				other = class[len(class)-1]
			}
			if one == other { // alone in its class
				r.hop[a][a] = math.Inf(1)
				continue
			}
			r.hop[a][b], load[a][b] = g.hopSeconds(one, other), g.loadSeconds(one, other)
			r.values = append(r.values, r.hop[a][b])
		}
	}
	if len(r.values) == 0 { // a single device
		r.values = []float64{0}
	}
	slices.Sort(r.values)
	r.values = slices.Compact(r.values)
	r.split()
	r.mix(load, make([]int, len(r.classes)), 0, r.size)
	slices.SortStableFunc(r.mixtures, func(a, b mixture) int { return cmp.Compare(a.load, b.load) })
	for class := range r.classes {
		first := slices.IndexFunc(r.mixtures, func(m mixture) bool { return m.counts[class] > 0 })
		r.leastLoad = append(r.leastLoad, r.mixtures[first].load)
	}
	for m := range r.mixtures {
		r.mixtures[m].self = r.crossing(r.mixtures[m].counts, r.mixtures[m].counts)
	}
	return r
}

// cheaper looks for a path that costs less than the limit, until so many mixtures were looked at. It reports whether
// that was enough to look everywhere: what it found is the cheapest then, or there is none.
func (r *runs) cheaper(limit float64, groups, effort int) (proven bool) {
	return r.ofFew(groups, limit, groups, effort)
}

// ofFew looks at paths of so many runs at most. Three are looked through in seconds on networks where all take hours,
// and good paths have few runs, since only equal mixtures meet over the fastest links.
func (r *runs) ofFew(most int, limit float64, groups, effort int) (proven bool) {
	r.most, r.limit, r.effort, r.best = most, limit, effort, nil
	r.rests = make([][mostClasses]int, groups)
	left := make([]int, len(r.classes))
	for class, devices := range r.classes {
		left[class] = len(devices)
	}
	r.extend(-1, left, groups, 0, 0)
	return r.effort > 0
}

func (r *runs) extend(last int, left []int, groups int, load, hops float64) {
	if groups == 0 {
		if load+hops < r.limit {
			r.limit, r.best = load+hops, slices.Clone(r.path)
		}
		return
	}
	var now []int
	if last >= 0 {
		now = r.mixtures[last].counts
	}
	for class, count := range left {
		if count > 0 {
			load = max(load, r.leastLoad[class])
		}
	}
	ahead := r.rest(now, left, groups, r.limit-load-hops)
	for m := range r.mixtures {
		mixture := &r.mixtures[m]
		if max(load, mixture.load)+hops+ahead >= r.limit || r.effort <= 0 {
			return
		}
		if m == last {
			continue
		}
		most := groups
		for class, count := range mixture.counts {
			if count > 0 {
				most = min(most, left[class]/count)
			}
		}
		for length := most; length >= 1; length-- {
			r.effort--
			r.tryRun(last, run{m, length}, left, groups, max(load, mixture.load), hops)
		}
	}
}

func (r *runs) tryRun(last int, next run, left []int, groups int, load, hops float64) {
	mixture := &r.mixtures[next.mixture]
	rest := r.rests[len(r.path)][:len(left)]
	for class := range left {
		rest[class] = left[class] - next.groups*mixture.counts[class]
	}
	if !r.ends(rest, groups-next.groups) {
		return
	}
	hops += float64(next.groups-1) * mixture.self
	ahead := r.rest(mixture.counts, rest, groups-next.groups, r.limit-load-hops)
	if load+hops+ahead >= r.limit {
		return
	}
	if last >= 0 {
		hops += r.edge(last, next.mixture)
		if load+hops+ahead >= r.limit {
			return
		}
	}
	r.path = append(r.path, next)
	r.extend(next.mixture, rest, groups-next.groups, load, hops)
	r.path = r.path[:len(r.path)-1]
}

// ends reports whether the rest can be seated in the runs that may follow the next: nothing in none, and in one only
// equal groups.
func (r *runs) ends(rest []int, groups int) bool {
	switch r.most - len(r.path) - 1 {
	case 0:
		return groups == 0
	case 1:
		return groups == 0 || !slices.ContainsFunc(rest, func(count int) bool { return count%groups != 0 })
	}
	return true
}

func (r *runs) edge(a, b int) float64 {
	key := [2]int{min(a, b), max(a, b)}
	seconds, known := r.edges[key]
	if !known {
		seconds = r.crossing(r.mixtures[a].counts, r.mixtures[b].counts)
		r.edges[key] = seconds
	}
	return seconds
}
