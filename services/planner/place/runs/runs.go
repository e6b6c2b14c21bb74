// Package runs searches, exactly or as far as its effort goes, for the stages of a grid on a network whose devices fall into few classes. A
// grid is equal pipelines of equal stages, and a group the devices of one stage. Devices that are alike are interchangeable in a group. So
// a group is a mixture, the number of devices of each class, and the path through the stages is a sequence of runs of equal mixtures
// (DT-FM, eq. 2 to 4, have the cost).
package runs

import (
	"cmp"
	"math"
	"slices"
)

// Network is devices in classes, and seconds between two devices by their classes: of a transfer there and back over a boundary
// between two stages, and of their exchange of gradients in one group. Both are symmetric, and not looked at within a class of one.
type Network struct {
	Devices   []int // per class
	Hop, Load [][]float64
}

// Run is a number of stages whose stages have as many devices of each class.
type Run struct {
	Counts []int // per class
	Stages int
}

// Search looks for the cheapest path, depth first over the runs.
type Search struct {
	devices   []int // of each class
	size      int   // of a group
	hop       [][]float64
	levels    []level
	values    []float64          // all hops, ascending
	mixtures  []mixture          // by load, ascending
	leastLoad []float64          // by class: of the mixtures that have it
	edges     map[[2]int]float64 // hops between two mixtures, as far as they were asked for

	limit  float64
	effort int
	most   int // runs of a path
	path   []run
	rests  [][MostClasses]int // what is left after each run of the path
	best   []run
}

type run struct{ mixture, stages int }

// New prepares the search for stages of a size that divides the number of devices. It returns nil where there are too many
// classes or mixtures.
func New(n Network, size int) *Search {
	s := &Search{devices: n.Devices, size: size, edges: map[[2]int]float64{}}
	if len(n.Devices) > MostClasses || s.count(0, s.size) > mostMixtures {
		return nil
	}
	s.take(n)
	s.split()
	s.mix(n.Load, make([]int, len(s.devices)), 0, s.size)
	slices.SortStableFunc(s.mixtures, func(a, b mixture) int { return cmp.Compare(a.load, b.load) })
	for class := range s.devices {
		first := slices.IndexFunc(s.mixtures, func(m mixture) bool { return m.counts[class] > 0 })
		s.leastLoad = append(s.leastLoad, s.mixtures[first].load)
	}
	for m := range s.mixtures {
		s.mixtures[m].self = s.crossing(s.mixtures[m].counts, s.mixtures[m].counts)
	}
	return s
}

// take lists the hops.
func (s *Search) take(n Network) {
	for a, row := range n.Hop {
		s.hop = append(s.hop, slices.Clone(row))
		if n.Devices[a] == 1 {
			s.hop[a][a] = math.Inf(1)
		}
		for _, seconds := range s.hop[a] {
			if !math.IsInf(seconds, 1) {
				s.values = append(s.values, seconds)
			}
		}
	}
	if len(s.values) == 0 { // a single device
		s.values = []float64{0}
	}
	slices.Sort(s.values)
	s.values = slices.Compact(s.values)
}

// Cheaper looks for the cheapest path that costs less than the limit and has so many runs at most, until so many mixtures were
// looked at. Three runs are looked through in seconds on networks where all take hours, and good paths have few runs, since only
// equal mixtures meet over the fastest links. The path is nil where none was found; proven is whether the effort was enough to
// look everywhere.
func (s *Search) Cheaper(limit float64, most, effort int) (path []Run, cost float64, proven bool) {
	s.most, s.limit, s.effort, s.best = most, limit, effort, nil
	stages := 0
	for _, devices := range s.devices {
		stages += devices
	}
	stages /= s.size
	s.rests = make([][MostClasses]int, stages)
	s.extend(-1, slices.Clone(s.devices), stages, 0, 0)
	for _, run := range s.best {
		path = append(path, Run{Counts: s.mixtures[run.mixture].counts, Stages: run.stages})
	}
	return path, s.limit, s.effort > 0
}

func (s *Search) extend(last int, left []int, stages int, load, hops float64) {
	if stages == 0 {
		if load+hops < s.limit {
			s.limit, s.best = load+hops, slices.Clone(s.path)
		}
		return
	}
	var now []int
	if last >= 0 {
		now = s.mixtures[last].counts
	}
	for class, count := range left {
		if count > 0 {
			load = max(load, s.leastLoad[class])
		}
	}
	ahead := s.rest(now, left, stages, s.limit-load-hops)
	for m := range s.mixtures {
		mixture := &s.mixtures[m]
		if max(load, mixture.load)+hops+ahead >= s.limit || s.effort <= 0 {
			return
		}
		if m == last {
			continue
		}
		most := stages
		for class, count := range mixture.counts {
			if count > 0 {
				most = min(most, left[class]/count)
			}
		}
		for length := most; length >= 1; length-- {
			s.effort--
			s.tryRun(last, run{m, length}, left, stages, max(load, mixture.load), hops)
		}
	}
}

func (s *Search) tryRun(last int, next run, left []int, stages int, load, hops float64) {
	mixture := &s.mixtures[next.mixture]
	rest := s.rests[len(s.path)][:len(left)]
	for class := range left {
		rest[class] = left[class] - next.stages*mixture.counts[class]
	}
	if !s.ends(rest, stages-next.stages) {
		return
	}
	hops += float64(next.stages-1) * mixture.self
	ahead := s.rest(mixture.counts, rest, stages-next.stages, s.limit-load-hops)
	if load+hops+ahead >= s.limit {
		return
	}
	if last >= 0 {
		hops += s.edge(last, next.mixture)
		if load+hops+ahead >= s.limit {
			return
		}
	}
	s.path = append(s.path, next)
	s.extend(next.mixture, rest, stages-next.stages, load, hops)
	s.path = s.path[:len(s.path)-1]
}

// ends reports whether the rest can be seated in the runs that may follow the next: nothing in none, and in one only
// equal stages.
func (s *Search) ends(rest []int, stages int) bool {
	switch s.most - len(s.path) - 1 {
	case 0:
		return stages == 0
	case 1:
		return stages == 0 || !slices.ContainsFunc(rest, func(count int) bool { return count%stages != 0 })
	}
	return true
}

func (s *Search) edge(a, b int) float64 {
	key := [2]int{min(a, b), max(a, b)}
	seconds, known := s.edges[key]
	if !known {
		seconds = s.crossing(s.mixtures[a].counts, s.mixtures[b].counts)
		s.edges[key] = seconds
	}
	return seconds
}
