package ring

import (
	"maps"
	"slices"
)

// Paces returns some of what messages cost, dearest first, without the dearest of all: as many as asked for, spread evenly
// over those that there are.
func (c Costs) Paces(most int) []float64 {
	all := []float64{c.usual}
	all = slices.AppendSeq(slices.AppendSeq(all, maps.Values(c.bySites)), maps.Values(c.unusual))
	slices.Sort(all)
	all = slices.Compact(all)
	slices.Reverse(all)
	all = all[1:]
	var paces []float64
	for i := range min(most, len(all)) {
		paces = append(paces, all[(i+1)*len(all)/min(most, len(all))-1])
	}
	return paces
}

// Linked returns the largest group of nodes, ascending, that reach each other over edges of at most some cost, where each
// node has two of these: no ring of such edges has others. Among groups of one size it is that with the least node. If there is
// no such group a pair takes its place, and none if all edges are dearer. O(nodes * sites +
// unusual pairs) times how often nodes fall away for others that did, and O(nodes^2) at worst to see who reaches whom.
func (c Costs) Linked(pace float64) []int {
	g := c.graph(pace)
	for g.shed() {
	}
	var largest []int
	for _, group := range g.groups() {
		if len(group) > len(largest) {
			largest = group
		}
	}
	if largest == nil {
		return c.firstPair(pace)
	}
	return largest
}

// firstPair is the first pair of nodes between which a message costs at most so much.
func (c Costs) firstPair(pace float64) []int {
	for a := range c.nodes {
		for b := a + 1; b < c.nodes; b++ {
			if c.Between(a, b) <= pace {
				return []int{a, b}
			}
		}
	}
	return nil
}

// graph has the edges that some nodes have, or those that they lack.
type graph struct {
	in    []bool
	count int
	lacks bool // edges are there unless they are said to be missing
	sites []int
	at    map[int]int          // by site: how many nodes are in
	apart map[int]map[int]bool // by site: sites to which edges are missing, or there
	lists [][]int              // by node: others to which its edge is not as their sites have it
}

func (c Costs) graph(pace float64) *graph {
	g := &graph{
		in: make([]bool, c.nodes), count: c.nodes, lacks: c.usual <= pace, sites: c.sites, at: c.bySite(), apart: map[int]map[int]bool{},
		lists: make([][]int, c.nodes),
	}
	if g.sites == nil { // all stand at one
		g.sites, g.at = make([]int, c.nodes), map[int]int{0: c.nodes}
	}
	for pair, cost := range c.bySites {
		if (cost <= pace) != g.lacks {
			g.part(pair/c.nodes, pair%c.nodes)
		}
	}
	for pair, cost := range c.unusual {
		if a, b := pair/c.nodes, pair%c.nodes; (cost <= pace) != g.usually(a, b) {
			g.lists[a], g.lists[b] = append(g.lists[a], b), append(g.lists[b], a)
		}
	}
	for node := range g.in {
		g.in[node] = true
	}
	return g
}

// part notes that edges between two sites are not as others.
func (g *graph) part(a, b int) {
	for _, ends := range [][2]int{{a, b}, {b, a}} {
		if g.apart[ends[0]] == nil {
			g.apart[ends[0]] = map[int]bool{}
		}
		g.apart[ends[0]][ends[1]] = true
	}
}

// usually reports whether two nodes have an edge unless they are on each other's lists.
func (g *graph) usually(a, b int) bool { return g.lacks != g.apart[g.sites[a]][g.sites[b]] }

// degree is how many edges a node has to those that are in. O(sites apart + nodes on its list).
func (g *graph) degree(node int) int {
	site, apart := g.sites[node], 0
	for other := range g.apart[site] {
		apart += g.at[other]
		if other == site {
			apart--
		}
	}
	degree := apart
	if g.lacks {
		degree = g.count - 1 - apart
	}
	for _, other := range g.lists[node] {
		switch {
		case !g.in[other]:
		case g.usually(node, other):
			degree--
		default:
			degree++
		}
	}
	return degree
}

// shed takes out the nodes with fewer than two edges, and reports whether there were any.
func (g *graph) shed() bool {
	var out []int
	for node, isIn := range g.in {
		if isIn && g.degree(node) < 2 {
			out = append(out, node)
		}
	}
	for _, node := range out {
		g.in[node] = false
		g.at[g.sites[node]]--
	}
	g.count -= len(out)
	return len(out) > 0
}

// groups are the nodes that are in, by whom they reach.
func (g *graph) groups() (groups [][]int) {
	var left []int // who was not reached
	for node, isIn := range g.in {
		if isIn {
			left = append(left, node)
		}
	}
	for len(left) > 0 {
		group := []int{left[0]}
		left = left[1:]
		for next := 0; next < len(group); next++ {
			listed := map[int]bool{}
			for _, other := range g.lists[group[next]] {
				listed[other] = true
			}
			var far []int
			for _, node := range left {
				if listed[node] != g.usually(group[next], node) {
					group = append(group, node)
				} else {
					far = append(far, node)
				}
			}
			left = far
		}
		slices.Sort(group)
		groups = append(groups, group)
	}
	return groups
}
