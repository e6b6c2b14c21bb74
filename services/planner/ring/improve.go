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
	s := &search{Costs: c, order: order, left: effort}
	for s.left > 0 && s.pass() {
	}
	return s.order
}

type search struct {
	Costs
	order []int
	left  int // edges to look at
}

// pass tries each edge that is dearer than the cheapest ones, and reports whether one was exchanged.
func (s *search) pass() (changed bool) {
	type edge struct {
		from, to int // nodes
		cost     float64
	}
	var dear []edge
	least := s.cheapest()
	for i, node := range s.order {
		next := s.at(i + 1)
		if cost := s.between(node, next); cost > least {
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

// cheapest is what an edge costs that need not be exchanged: the least of all, unless so few cost less than usual that no ring
// has those alone.
func (s *search) cheapest() float64 {
	least, cheap := s.usual, 0
	for _, cost := range s.unusual {
		if cost < s.usual {
			least, cheap = min(least, cost), cheap+1
		}
	}
	if cheap < s.nodes {
		return s.usual
	}
	return least
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
	out := s.between(a, b)
	try := func(m move) {
		if m.come < m.gone && (!found || cmp.Or(cmp.Compare(m.come, best.come), cmp.Compare(m.sum, best.sum)) < 0) {
			best, found = m, true
		}
	}
	before, behind := s.at(at-1), s.at(at+2)
	was, joined := s.between(before, a), s.between(before, b) // where a goes away
	is, bridged := s.between(b, behind), s.between(a, behind) // where b does
	for step := 1; step < n; step++ {
		to := (at + step) % n
		c, d := s.at(to), s.at(to+1)
		other := s.between(c, d)
		ac, bd, ad, bc := s.between(a, c), s.between(b, d), s.between(a, d), s.between(b, c)
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
