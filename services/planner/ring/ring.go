// Package ring decides in which order the replicas of a layer add up its gradients: around a ring, whose slowest link
// sets the pace of all, so that a slow pair is not neighbours where that can be avoided.
//
// To find the ring whose worst link is best is the bottleneck travelling salesman problem (Garfinkel and Gilbert, "The
// Bottleneck Traveling Salesman Problem: Algorithms and Probabilistic Analysis", J. ACM 25(3), 1978). It is solved
// exactly for small groups, and by local search for large ones.
package ring

import (
	"cmp"
	"math"
	"slices"
)

// Edge is a pair of nodes, by their number, and what a message between them costs.
type Edge struct {
	A, B int
	Cost float64
}

// Costs are what a message costs between any two of so many nodes: as usual, as usual between their sites, or as between these two.
type Costs struct {
	nodes   int
	usual   float64
	sites   []int           // by node; nil: all links are as usual, but for those of pairs
	bySites map[int]float64 // by pair of sites, where that is not as usual
	unusual map[int]float64 // by pair
}

// NewCosts returns costs. If a pair is named twice, as for its two directions, the dearer one counts: nobody knows
// yet which way around the ring the messages go. A pair of one node with itself, or out of range, counts for nothing.
func NewCosts(nodes int, usual float64, unusual []Edge) Costs {
	c := Costs{nodes: nodes, usual: usual, unusual: make(map[int]float64, len(unusual))}
	for _, edge := range unusual {
		if edge.A != edge.B && min(edge.A, edge.B) >= 0 && max(edge.A, edge.B) < nodes {
			dearer(c.unusual, c.pair(edge.A, edge.B), edge.Cost)
		}
	}
	return c
}

// WithSites returns costs in which nodes stand at sites, by number, and messages between some of these, or within one, cost other than
// usual where no pair is named. A pair of sites that is named twice counts as the dearer one. O(nodes + pairs of sites).
func (c Costs) WithSites(sites []int, between []Edge) Costs {
	c.sites, c.bySites = make([]int, c.nodes), make(map[int]float64, len(between))
	number := map[int]int{} // of sites that have nodes
	for node, site := range sites {
		if _, known := number[site]; !known {
			number[site] = len(number)
		}
		c.sites[node] = number[site]
	}
	count := c.bySite()
	for _, edge := range between {
		a, known := number[edge.A]
		if b, both := number[edge.B]; known && both && c.pairs(count, a, b) > 0 {
			dearer(c.bySites, c.pair(a, b), edge.Cost)
		}
	}
	if len(c.bySites) == 0 {
		c.sites = nil
	}
	return c
}

// pair is the key of two nodes, or two sites, of which there are no more than nodes.
func (c Costs) pair(a, b int) int { return min(a, b)*c.nodes + max(a, b) }

func dearer(costs map[int]float64, pair int, cost float64) {
	if known, twice := costs[pair]; !twice || cost > known {
		costs[pair] = cost
	}
}

// bySite is how many nodes stand at each site.
func (c Costs) bySite() map[int]int {
	count := map[int]int{}
	for _, site := range c.sites {
		count[site]++
	}
	return count
}

// pairs is how many pairs of nodes stand at two sites, or both at one.
func (c Costs) pairs(count map[int]int, a, b int) int {
	if a == b {
		return count[a] * (count[a] - 1) / 2
	}
	return count[a] * count[b]
}

// Between is what a message costs between two nodes.
func (c Costs) Between(a, b int) float64 {
	if len(c.unusual) > 0 {
		if cost, isUnusual := c.unusual[c.pair(a, b)]; isUnusual {
			return cost
		}
	}
	if c.sites != nil {
		if cost, isUnusual := c.bySites[c.pair(c.sites[a], c.sites[b])]; isUnusual {
			return cost
		}
	}
	return c.usual
}

// Worst is the cost of the dearest edge of a ring; zero of fewer than two nodes.
func (c Costs) Worst(order []int) float64 {
	worst := 0.0
	for i, node := range order {
		if next := order[(i+1)%len(order)]; next != node {
			worst = max(worst, c.Between(node, next))
		}
	}
	return worst
}

// WorstWith is the cost of the dearest edge of a ring with one more node between the two of its neighbours that make this least.
// O(nodes).
func (c Costs) WorstWith(order []int, node int) float64 {
	if len(order) < 2 {
		return c.Worst(append(slices.Clone(order), node))
	}
	dearest, next, at := 0.0, 0.0, 0 // the dearest edge, which one it is, and the one after it
	for i := range order {
		switch edge := c.Between(order[i], order[(i+1)%len(order)]); {
		case edge > dearest:
			dearest, next, at = edge, dearest, i
		case edge > next:
			next = edge
		}
	}
	least := math.Inf(1)
	for i := range order {
		others := dearest
		if i == at {
			others = next
		}
		least = min(least, max(others, c.Between(order[i], node), c.Between(node, order[(i+1)%len(order)])))
	}
	return least
}

// exactly is up to how many nodes Order is exact: ten take 1.3 ms (BenchmarkTheOrderOfTenNodesWithDrawnLinks), each more twice as
// long and a little.
const exactly = 10

// Order returns all nodes in the order of a ring, which begins at node 0. Its dearest edge is as cheap as can be, then the sum
// of its edges: exactly among up to ten nodes, as found by exchanging edges among more. If that leaves a choice the nodes
// are as nearly in ascending order as they can be, so that equal links change nothing. O(2^nodes * nodes^2) for few nodes;
// else O(nodes) where all links are as usual, O(nodes) more for each dear edge that is exchanged, and no more than
// effort looks at an edge. With sites the search begins with a ring that keeps them together, which takes the ring of the sites more.
func Order(c Costs) []int {
	order := make([]int, c.nodes)
	for i := range order {
		order[i] = i
	}
	switch {
	case len(c.unusual)+len(c.bySites) == 0 || c.nodes < 4:
		return order
	case c.nodes <= exactly:
		return exact(c)
	}
	c.sort(order)
	return begun(improved(c, order))
}

// sort puts the nodes of each site together, and the sites in the order of their own ring: so a ring crosses from one to another once
// for each site, where links between sites are dearer than those within.
func (c Costs) sort(order []int) {
	if c.sites == nil {
		return
	}
	var edges []Edge
	for pair, cost := range c.bySites {
		edges = append(edges, Edge{pair / c.nodes, pair % c.nodes, cost})
	}
	rank := make([]int, 1+slices.Max(c.sites))
	for at, site := range Order(NewCosts(len(rank), c.usual, edges)) {
		rank[site] = at
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(rank[c.sites[a]], rank[c.sites[b]]) })
}

// begun turns a ring so that it begins at node 0 and goes on to the lesser one of its neighbours.
func begun(order []int) []int {
	at := slices.Index(order, 0)
	order = slices.Concat(order[at:], order[:at])
	if order[len(order)-1] < order[1] {
		slices.Reverse(order[1:])
	}
	return order
}

// exact is the best ring by dynamic programming over sets of nodes (Held and Karp, "A Dynamic Programming Approach to
// Sequencing Problems", J. SIAM 10(1), 1962): once for the dearest edge, then for the sum of those that are no dearer.
func exact(c Costs) []int {
	worst := newTable(c, func(edge, rest float64) float64 { return max(edge, rest) }).best
	least := newTable(c, func(edge, rest float64) float64 {
		if edge > worst {
			return math.Inf(1)
		}
		return edge + rest
	})
	return least.order()
}

// table has the cheapest ways from a node back to node 0 through a set of others.
type table struct {
	costs Costs
	add   func(edge, rest float64) float64
	way   [][]float64 // by the set of nodes that were passed, node 0 included, and the last of them
	best  float64
}

func newTable(c Costs, add func(edge, rest float64) float64) *table {
	t := &table{costs: c, add: add, way: make([][]float64, 1<<c.nodes)}
	for passed := 1<<c.nodes - 1; passed > 0; passed -= 2 { // those without node 0 are nobody's
		t.way[passed] = make([]float64, c.nodes)
		for last := range c.nodes {
			if passed>>last&1 == 1 {
				t.way[passed][last], _ = t.next(passed, last)
			}
		}
	}
	t.best = t.way[1][0]
	return t
}

// next is the cheapest way on, and the least node that it begins with.
func (t *table) next(passed, last int) (cost float64, next int) {
	if passed == 1<<t.costs.nodes-1 {
		return t.add(t.costs.Between(last, 0), 0), 0
	}
	cost = math.Inf(1)
	for node := range t.costs.nodes {
		if passed>>node&1 == 1 {
			continue
		}
		if way := t.add(t.costs.Between(last, node), t.way[passed|1<<node][node]); way < cost || next == 0 {
			cost, next = way, node
		}
	}
	return cost, next
}

func (t *table) order() []int {
	order, passed := []int{0}, 1
	for len(order) < t.costs.nodes {
		_, node := t.next(passed, order[len(order)-1])
		order, passed = append(order, node), passed|1<<node
	}
	return order
}
