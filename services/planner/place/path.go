package place

import (
	"math"
	"math/bits"
	"slices"
)

// ShortestPath is the cheapest path that visits every vertex once, both ends free: its length, and the vertices in its
// order, by dynamic programming over sets (Held and Karp). weight is symmetric. O(2^n * n^2) time, O(2^n * n) space.
func ShortestPath(weight [][]float64) (length float64, order []int) {
	n := len(weight)
	if n == 0 {
		return 0, nil
	}
	lengths := make([]float64, n<<n) // by set of vertices visited, by the last of them
	for set := 1; set < 1<<n; set++ {
		for last := range n {
			if set&(1<<last) != 0 && bits.OnesCount(uint(set)) > 1 {
				lengths[set*n+last], _ = shortestTo(weight, lengths, set&^(1<<last), last)
			}
		}
	}
	set := 1<<n - 1
	all := lengths[set*n:]
	last := slices.Index(all, slices.Min(all))
	order = []int{last}
	for len(order) < n {
		set &^= 1 << last
		_, last = shortestTo(weight, lengths, set, last)
		order = append(order, last)
	}
	return slices.Min(all), order
}

// shortPath is the shortest path through few vertices. Through many it is theirs in order, of which stretches are turned round while
// that makes it shorter (2-opt). O(n^2) a turn.
func shortPath(weight [][]float64) (order []int) {
	n := len(weight)
	if n <= longestPath {
		_, order = ShortestPath(weight)
		return order
	}
	for vertex := range n {
		order = append(order, vertex)
	}
	at := func(i, j int) float64 { // no edge before the first and behind the last
		if i < 0 || j == n {
			return 0
		}
		return weight[order[i]][order[j]]
	}
	for shorter := true; shorter; {
		shorter = false
		for i := range n {
			for j := i + 1; j < n; j++ {
				before, after := at(i-1, i)+at(j, j+1), 0.0
				if i > 0 {
					after += at(i-1, j)
				}
				if j+1 < n {
					after += at(i, j+1)
				}
				if after < before-rounding {
					slices.Reverse(order[i : j+1])
					shorter = true
				}
			}
		}
	}
	return order
}

// shortestTo is the shortest path through a set that goes on to a vertex, and the vertex of the set it ends with.
func shortestTo(weight [][]float64, length []float64, set, next int) (best float64, last int) {
	n, best := len(weight), math.Inf(1)
	for vertex := range n {
		if through := length[set*n+vertex] + weight[vertex][next]; set&(1<<vertex) != 0 && through < best {
			best, last = through, vertex
		}
	}
	return best, last
}

// Pairing pairs two groups of equal size so that the slowest link is the fastest possible, by links[a*size+b]. It
// returns that link and the partner of each of the left. O(size^3 log size).
func Pairing(links []float64, size int) (seconds float64, partner []int) {
	least := slowestNeeded(links, size)
	if partner = paired(links, size, least); partner != nil {
		return least, partner
	}
	var limits []float64
	for _, link := range links {
		if link > least {
			limits = append(limits, link)
		}
	}
	slices.Sort(limits)
	limits = slices.Compact(limits)
	low, high := 0, len(limits)-1
	for low < high {
		if middle := (low + high) / 2; paired(links, size, limits[middle]) != nil {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return limits[low], paired(links, size, limits[low])
}

// slowestNeeded is the slowest of everybody's fastest links, which is often enough for all.
func slowestNeeded(links []float64, size int) float64 {
	least := 0.0
	for i := range size {
		left, right := math.Inf(1), math.Inf(1)
		for j := range size {
			left, right = min(left, links[i*size+j]), min(right, links[j*size+i])
		}
		least = max(least, left, right)
	}
	return least
}

// paired returns the partner of each of the left over links of at most limit, by augmenting paths; nil where not all
// can be paired.
func paired(links []float64, size int, limit float64) []int {
	left := make([]int, size) // the left partner of each of the right
	for b := range left {
		left[b] = -1
	}
	seen := make([]bool, size)
	var pair func(a int) bool
	pair = func(a int) bool {
		for b := range left {
			if links[a*size+b] > limit || seen[b] {
				continue
			}
			seen[b] = true
			if left[b] < 0 || pair(left[b]) {
				left[b] = a
				return true
			}
		}
		return false
	}
	for a := range size {
		clear(seen)
		if !pair(a) {
			return nil
		}
	}
	partner := make([]int, size)
	for b, a := range left {
		partner[a] = b
	}
	return partner
}
