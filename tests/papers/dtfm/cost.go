// Package dtfm is DT-FM's problem, the placement of equal pipelines of equal stages on an unequal network, with exact
// searches where devices fall into few classes. They prove how good the planner's own search is (place.Problem.Refine).
package dtfm

import "github.com/reknit/reknit/services/planner/place"

// Cost is DT-FM's cost of a partition of devices into equally large data-parallel groups, one a stage, in any order
// (eq. 2 to 4): the slowest group's exchange of gradients, and the cheapest path through the groups, where an edge is
// the slowest link of the best pairing of the two. At most 16 or so groups: the path takes O(2^groups * groups^2).
func (g Grid) Cost(groups [][]int) (dataParallel, pipeline float64) {
	length, _ := place.ShortestPath(g.edges(groups))
	return g.exchangeSeconds(groups), length
}

// edges are the seconds of the slowest hop between any two groups, paired in the best way.
func (g Grid) edges(groups [][]int) [][]float64 {
	edges := make([][]float64, len(groups))
	for i := range groups {
		edges[i] = make([]float64, len(groups))
		for j := range i {
			edges[i][j], _ = g.paired(groups[i], groups[j])
			edges[j][i] = edges[i][j]
		}
	}
	return edges
}

// paired is the pairing of two groups whose slowest hop is the fastest possible.
func (g Grid) paired(left, right []int) (slowest float64, partner []int) {
	hops := make([]float64, 0, len(left)*len(right))
	for _, a := range left {
		for _, b := range right {
			hops = append(hops, g.hopSeconds(a, b))
		}
	}
	return place.Pairing(hops, len(left))
}

// exchangeSeconds: every member of a group sends its part of the gradients, one of as many as there are members, to
// every other and back; the slowest member of all groups counts.
func (g Grid) exchangeSeconds(groups [][]int) float64 {
	slowest := 0.0
	for _, group := range groups {
		for _, a := range group {
			seconds := 0.0
			for _, b := range group {
				if a != b {
					seconds += g.loadSeconds(a, b)
				}
			}
			slowest = max(slowest, seconds)
		}
	}
	return slowest
}

// loadSeconds is what two members of a group exchange in a step, there and back.
func (g Grid) loadSeconds(a, b int) float64 {
	return 2 * g.seconds(a, b, g.GradientBytes/float64(g.Pipelines))
}

// hopSeconds is a transfer over a boundary between two stages, there and back.
func (g Grid) hopSeconds(a, b int) float64 { return 2 * g.seconds(a, b, g.ActivationBytes) }

func (g Grid) seconds(a, b int, bytes float64) float64 {
	return g.Network.DelaySeconds[a][b] + bytes/g.Network.BytesPerSecond[a][b]
}

// classes groups devices with equal links to all others, and among themselves.
func (g Grid) classes() [][]int {
	var classes [][]int
	for device := range g.devices() {
		known := false
		for c, class := range classes {
			if known = g.alike(class, device); known {
				classes[c] = append(class, device)
				break
			}
		}
		if !known {
			classes = append(classes, []int{device})
		}
	}
	return classes
}

func (g Grid) alike(class []int, device int) bool {
	first := class[0]
	for other := range g.devices() {
		if other != first && other != device && !g.sameLink(first, device, other) {
			return false
		}
	}
	return len(class) < 2 || g.sameLink(class[1], device, first)
}

// sameLink reports whether two devices have an equal link to another.
func (g Grid) sameLink(a, b, other int) bool {
	n := g.Network
	return n.DelaySeconds[other][a] == n.DelaySeconds[other][b] &&
		n.BytesPerSecond[other][a] == n.BytesPerSecond[other][b]
}
