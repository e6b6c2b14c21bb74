package place

import (
	"math/bits"
	"slices"
)

// Network is the links between devices, as DT-FM has them: symmetric, both directions averaged.
type Network struct {
	DelaySeconds   [][]float64
	BytesPerSecond [][]float64
}

func (n Network) seconds(a, b int, bytes float64) float64 {
	return n.DelaySeconds[a][b] + bytes/n.BytesPerSecond[a][b]
}

// Cost is DT-FM's cost of a partition of devices into equally large data-parallel groups, one a stage, in any order
// (eq. 2 to 4): the slowest group's exchange of gradients, and the cheapest path through the groups, where an edge is
// the slowest link of the best pairing of the two. At most 16 or so groups: the path takes O(2^groups * groups^2).
func (n Network) Cost(groups [][]int, gradientBytes, activationBytes float64) (dataParallel, pipeline float64) {
	edges := make([][]float64, len(groups))
	for i, group := range groups {
		dataParallel = max(dataParallel, n.exchangeSeconds(group, gradientBytes))
		edges[i] = make([]float64, len(groups))
		for j := range i {
			edges[i][j] = n.pairingSeconds(group, groups[j], activationBytes)
			edges[j][i] = edges[i][j]
		}
	}
	return dataParallel, ShortestPath(edges)
}

// exchangeSeconds: every member sends its part of the gradients, one of as many as there are members, to every other
// and back; the slowest member counts.
func (n Network) exchangeSeconds(group []int, bytes float64) float64 {
	slowest := 0.0
	for _, a := range group {
		seconds := 0.0
		for _, b := range group {
			if a != b {
				seconds += 2 * n.seconds(a, b, bytes/float64(len(group)))
			}
		}
		slowest = max(slowest, seconds)
	}
	return slowest
}

// pairingSeconds is the slowest link, there and back, of the pairing of two groups whose slowest link is the fastest.
func (n Network) pairingSeconds(left, right []int, bytes float64) float64 {
	var links []float64
	for _, a := range left {
		for _, b := range right {
			links = append(links, 2*n.seconds(a, b, bytes))
		}
	}
	limits := slices.Clone(links)
	slices.Sort(limits)
	low, high := 0, len(limits)-1
	for low < high {
		if middle := (low + high) / 2; pairable(links, len(left), limits[middle]) {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return limits[low]
}

// pairable reports whether all can be paired by links[a*size+b] of at most limit, by augmenting paths.
func pairable(links []float64, size int, limit float64) bool {
	partner := make([]int, size) // of the right ones
	for b := range partner {
		partner[b] = -1
	}
	var pair func(a int, seen []bool) bool
	pair = func(a int, seen []bool) bool {
		for b := range partner {
			if links[a*size+b] > limit || seen[b] {
				continue
			}
			seen[b] = true
			if partner[b] < 0 || pair(partner[b], seen) {
				partner[b] = a
				return true
			}
		}
		return false
	}
	for a := range size {
		if !pair(a, make([]bool, size)) {
			return false
		}
	}
	return true
}

// ShortestPath is the length of the cheapest path that visits every vertex once, both ends free, by dynamic programming
// over sets (Held and Karp). weight is symmetric. O(2^n * n^2) time, O(2^n * n) space.
func ShortestPath(weight [][]float64) float64 {
	n := len(weight)
	if n == 0 {
		return 0
	}
	length := make([][]float64, 1<<n) // by set of vertices visited, by the last of them
	for set := 1; set < len(length); set++ {
		length[set] = make([]float64, n)
		for last := range n {
			if set&(1<<last) != 0 && bits.OnesCount(uint(set)) > 1 {
				length[set][last] = shortestTo(weight, length[set&^(1<<last)], set&^(1<<last), last)
			}
		}
	}
	return slices.Min(length[len(length)-1])
}

func shortestTo(weight [][]float64, length []float64, set, last int) float64 {
	best := -1.0
	for vertex := range weight {
		if set&(1<<vertex) == 0 {
			continue
		}
		if through := length[vertex] + weight[vertex][last]; best < 0 || through < best {
			best = through
		}
	}
	return best
}
