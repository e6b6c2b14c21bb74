package ring

import "slices"

// Paces returns some of what messages cost, dearest first, without the dearest of all: as many as asked for, spread evenly
// over those that there are.
func (c Costs) Paces(most int) []float64 {
	all := []float64{c.usual}
	for _, cost := range c.unusual {
		all = append(all, cost)
	}
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
// no such group a pair takes its place, and none if all edges are dearer. O(nodes +
// unusual pairs), times how often nodes fall away for others that did.
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
		return c.pair(pace)
	}
	return largest
}

// pair is the first pair of nodes between which a message costs at most so much.
func (c Costs) pair(pace float64) []int {
	for a := range c.nodes {
		for b := a + 1; b < c.nodes; b++ {
			if c.between(a, b) <= pace {
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
	lists [][]int
	lacks bool // the lists are of missing edges
}

func (c Costs) graph(pace float64) *graph {
	g := &graph{in: make([]bool, c.nodes), count: c.nodes, lists: make([][]int, c.nodes), lacks: c.usual <= pace}
	for pair, cost := range c.unusual {
		if (cost > pace) == g.lacks {
			a, b := pair/c.nodes, pair%c.nodes
			g.lists[a], g.lists[b] = append(g.lists[a], b), append(g.lists[b], a)
		}
	}
	for node := range g.in {
		g.in[node] = true
	}
	return g
}

// degree is how many edges a node has to those that are in.
func (g *graph) degree(node int) int {
	listed := 0
	for _, other := range g.lists[node] {
		if g.in[other] {
			listed++
		}
	}
	if g.lacks {
		return g.count - 1 - listed
	}
	return listed
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
				if listed[node] != g.lacks {
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
