package place

import (
	"cmp"
	"math"
	"slices"

	"github.com/reknit/reknit/services/planner/place/runs"
)

// The clearest two groupings of the nodes into sites are tried, and the paths of few runs, as far as the effort goes. An effort of 200,000
// mixtures for each number of runs takes 20 ms or so, and finds the optimum of DT-FM's case 4 with uneven regions.
const (
	mostGroupings = 2
	mostRuns      = 3
	mixedEffort   = 200_000
)

// mixed are layouts of a grid whose groups have equal shares of the sites for a run of stages, and then others, as few times as is
// best by the usual links between and within sites. Such runs are the optimum where nodes of a site are alike: only equal groups
// pair over the fastest links. Elsewhere they are starts that single swaps hardly find.
func (l *layout) mixed() (layouts [][]int) {
	if !l.traffic.grid() || len(l.traffic.columns) < 2 || len(l.traffic.columns[0]) < 2 {
		return nil
	}
	groupings := l.sites(runs.MostClasses)
	slices.SortStableFunc(groupings, func(a, b grouping) int { return cmp.Compare(b.gain, a.gain) })
	for _, g := range groupings {
		search := runs.New(l.between(g.sites), len(l.traffic.columns[0]))
		if search == nil {
			continue // too many mixtures
		}
		if path := ofFewRuns(search); path != nil {
			layouts = append(layouts, l.seated(path, g.sites))
		}
		if len(layouts) == mostGroupings {
			break
		}
	}
	return layouts
}

// ofFewRuns is the cheapest path found: among those of one run, then of two, and so on. Paths of two are looked through whole, and what
// they cost bounds the search among those of three, of which there may be too many. Without that the first plans of ten drawn networks
// cost 1.038 times the best known in the mean, and 1.022 with it.
func ofFewRuns(search *runs.Search) (path []runs.Run) {
	least := math.Inf(1)
	for most := 1; most <= mostRuns; most++ {
		if cheaper, cost, _ := search.Cheaper(least, most, mixedEffort); cheaper != nil {
			path, least = cheaper, cost
		}
	}
	return path
}

// seated gives the groups of a path nodes of each site in their order.
func (l *layout) seated(path []runs.Run, sites [][]int) []int {
	nodeOf, left, stage := make([]int, len(l.nodeOf)), slices.Clone(sites), 0
	for _, run := range path {
		for range run.Stages {
			var group []int
			for site, count := range run.Counts {
				group, left[site] = append(group, left[site][:count]...), left[site][count:]
			}
			for i, seat := range l.traffic.columns[stage] {
				nodeOf[seat] = group[i]
			}
			stage++
		}
	}
	return nodeOf
}

// between is what links take between sites and within: the median hop, and the mean exchange.
func (l *layout) between(sites [][]int) runs.Network {
	var n runs.Network
	for _, some := range sites {
		hop, load := make([]float64, len(sites)), make([]float64, len(sites))
		for site, others := range sites {
			hop[site], load[site] = l.usual(some, others)
		}
		n.Devices, n.Hop, n.Load = append(n.Devices, len(some)), append(n.Hop, hop), append(n.Load, load)
	}
	return n
}

func (l *layout) usual(some, others []int) (hop, load float64) {
	var hops []float64
	exchange := l.traffic.peers[l.traffic.columns[0][0]][0]
	for _, one := range some {
		row := l.links.row(one)
		for _, other := range others {
			if one != other {
				hops = append(hops, l.hopOver(row[other]))
				load += exchange.over(row[other])
			}
		}
	}
	if len(hops) == 0 {
		return 0, 0
	}
	slices.Sort(hops)
	return hops[len(hops)/2], load / float64(len(hops))
}
