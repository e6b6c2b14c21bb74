package ring

import (
	"cmp"
	"slices"
)

// effort bounds the local search, in edges looked at. A thousand nodes at two sites, half of whose links are unusual, took 0.3 s
// (BenchmarkTheOrderOfAThousandNodesOfTwoSites).
const effort = 4_000_000

// improved takes dear edges out of a ring, the dearest first, as long as two edges can be exchanged for two of which none is as
// dear (2-opt; Croes, "A Method for Solving Traveling-Salesman Problems", Operations Research 6(6), 1958), or a node be put
// between two others. Sorted with the dearest first, the edges become less with each exchange, so that this ends.
func improved(c Costs, order []int) []int {
	s := newSearch(c, order)
	for s.left > 0 && s.pass() {
	}
	return s.order
}

type search struct {
	Costs
	order []int
	least float64 // what an edge costs that need not be exchanged
	left  int     // edges to look at
}

func newSearch(c Costs, order []int) *search {
	return &search{Costs: c, order: order, least: c.cheapest(), left: effort}
}

// pass tries each edge that is dearer than the cheapest ones, and reports whether one was exchanged.
func (s *search) pass() (changed bool) {
	type edge struct {
		from, to int // nodes
		cost     float64
	}
	var dear []edge
	for i, node := range s.order {
		next := s.at(i + 1)
		if cost := s.Between(node, next); cost > s.least {
			dear = append(dear, edge{node, next, cost})
		}
	}
	slices.SortStableFunc(dear, func(a, b edge) int { return cmp.Compare(b.cost, a.cost) })
	place := make([]int, s.nodes)
	s.number(place, 0, len(s.order))
	for _, e := range dear {
		at := place[e.from]
		if s.left <= 0 || s.at(at+1) != e.to {
			continue // exchanged meanwhile
		}
		if s.exchange(at, place) {
			changed = true
		}
	}
	return changed
}

// cheapest is what an edge costs that need not be exchanged: the least of all, unless so few cost that little that no ring
// has those alone.
func (c Costs) cheapest() float64 {
	usual := c.cheapestUsual()
	least, cheap := usual, 0
	for _, cost := range c.unusual {
		if cost < usual {
			least, cheap = min(least, cost), cheap+1
		}
	}
	if cheap < c.nodes {
		return usual
	}
	return least
}

// cheapestUsual is the least that at least as many pairs cost at most as there are nodes, by what is usual between their sites.
func (c Costs) cheapestUsual() float64 {
	type level struct {
		cost  float64
		pairs int
	}
	count, left := c.bySite(), c.nodes*(c.nodes-1)/2
	var levels []level
	for pair, cost := range c.bySites {
		pairs := c.pairs(count, pair/c.nodes, pair%c.nodes)
		levels, left = append(levels, level{cost, pairs}), left-pairs
	}
	levels = append(levels, level{c.usual, left})
	slices.SortFunc(levels, func(a, b level) int { return cmp.Compare(a.cost, b.cost) })
	pairs := 0
	for _, level := range levels {
		if pairs += level.pairs; pairs >= c.nodes {
			return level.cost
		}
	}
	return c.usual
}

func (s *search) at(i int) int { return s.order[(i+len(s.order))%len(s.order)] }

func (s *search) number(place []int, first, end int) {
	for i := first; i < end; i++ {
		place[s.order[i]] = i
	}
}

// move is a way to change the ring: the edges that go and those that come, by their dearest and their sum.
type move struct {
	gone, come float64
	sum        float64 // of those that come, less those that go
	kind, to   int
}

const (
	reversing = iota // the part between the edge and the other one
	firstAway        // the edge's first node goes between the nodes of the other
	lastAway
)

// exchange takes the edge behind a position out of the ring, if that helps.
func (s *search) exchange(at int, place []int) bool {
	n := len(s.order)
	best, found := move{}, false
	a, b := s.at(at), s.at(at+1)
	out := s.Between(a, b)
	try := func(m move) {
		if m.come < m.gone && (!found || cmp.Or(cmp.Compare(m.come, best.come), cmp.Compare(m.sum, best.sum)) < 0) {
			best, found = m, true
		}
	}
	before, behind := s.at(at-1), s.at(at+2)
	was, joined := s.Between(before, a), s.Between(before, b) // where a goes away
	is, bridged := s.Between(b, behind), s.Between(a, behind) // where b does
	for step := 1; step < n; step++ {
		to := (at + step) % n
		c, d := s.at(to), s.at(to+1)
		other := s.Between(c, d)
		ac, bd, ad, bc := s.Between(a, c), s.Between(b, d), s.Between(a, d), s.Between(b, c)
		if c != b && d != a {
			try(move{max(out, other), max(ac, bd), ac + bd - out - other, reversing, to})
		}
		if d != a { // a goes between c and d
			try(move{max(out, other, was), max(ac, ad, joined), ac + ad + joined - out - other - was, firstAway, to})
		}
		if c != b {
			try(move{max(out, other, is), max(bc, bd, bridged), bc + bd + bridged - out - other - is, lastAway, to})
		}
	}
	s.left -= 3 * n
	if found {
		s.make(at, best)
		s.number(place, 0, n)
	}
	return found
}

// make changes the ring at an edge, where no node counts as before another but around the ring.
func (s *search) make(at int, m move) {
	n := len(s.order)
	if m.kind == reversing {
		last := m.to
		if last <= at {
			last += n
		}
		for i, j := at+1, last; i < j; i, j = i+1, j-1 {
			s.order[i%n], s.order[j%n] = s.order[j%n], s.order[i%n]
		}
		return
	}
	node, before := s.at(at), s.at(m.to)
	if m.kind == lastAway {
		node = s.at(at + 1)
	}
	s.order = slices.DeleteFunc(s.order, func(other int) bool { return other == node })
	s.order = slices.Insert(s.order, slices.Index(s.order, before)+1, node)
}
