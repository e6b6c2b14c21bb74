package place

// swapEffort bounds the swaps: how often it may be asked whether two nodes talk. 2,048 nodes with eight dear links each
// come to the bound within some 30 ms; a hundred nodes never do.
const swapEffort = 4_000_000

// swaps is a descent over exchanges of two nodes.
type swaps struct {
	problem        Problem
	nodeOf, seatOf []int
	dear           [][]Pair // per node: its dear pairs, it being A
	moved          []bool   // per node: it was swapped, and may fetch more than it need
	effort         int
}

func newSwaps(p Problem, nodeOf []int) *swaps {
	s := &swaps{problem: p, nodeOf: nodeOf, seatOf: make([]int, len(nodeOf)), dear: make([][]Pair, len(nodeOf)),
		moved: make([]bool, len(nodeOf)), effort: swapEffort}
	for seat, node := range nodeOf {
		s.seatOf[node] = seat
	}
	for _, pair := range p.Dear {
		s.dear[pair.A] = append(s.dear[pair.A], pair)
		s.dear[pair.B] = append(s.dear[pair.B], Pair{pair.B, pair.A, pair.Cost})
	}
	return s
}

// descend gives each node in turn that costs something, or was swapped and must fetch something, the best seat to swap
// for, until no swap helps. Before the first swap all fetch the least.
func (s *swaps) descend() {
	for improved := true; improved && s.effort > 0; {
		improved = false
		for node := range s.seatOf {
			seat := s.seatOf[node]
			if s.cost(node, seat) > 0 || s.moved[node] && s.problem.missing(node, seat) > 0 {
				improved = s.improve(node) || improved
			}
		}
	}
}

func (s *swaps) improve(node int) bool {
	best, bestCost, bestBytes := node, 0.0, int64(0)
	for other := range s.seatOf {
		if other == node || s.effort <= 0 {
			continue
		}
		cost, bytes, ok := s.gain(node, other)
		if ok && (cost < bestCost || cost == bestCost && bytes < bestBytes) {
			best, bestCost, bestBytes = other, cost, bytes
		}
	}
	if best == node {
		return false
	}
	s.swap(node, best)
	s.moved[node], s.moved[best] = true, true
	return true
}

// gain returns what a swap adds to the cost of the pairs and to the bytes to fetch; not ok where memory forbids it.
func (s *swaps) gain(a, b int) (cost float64, bytes int64, ok bool) {
	seatA, seatB := s.seatOf[a], s.seatOf[b]
	if seatA >= len(s.problem.Places) && seatB >= len(s.problem.Places) || !s.problem.fits(a, seatB) ||
		!s.problem.fits(b, seatA) {
		return 0, 0, false
	}
	cost = -s.cost(a, seatA) - s.cost(b, seatB)
	bytes = -s.problem.missing(a, seatA) - s.problem.missing(b, seatB)
	s.swap(a, b)
	cost += s.cost(a, seatB) + s.cost(b, seatA)
	bytes += s.problem.missing(a, seatB) + s.problem.missing(b, seatA)
	s.swap(a, b)
	return cost, bytes, true
}

func (s *swaps) swap(a, b int) {
	s.seatOf[a], s.seatOf[b] = s.seatOf[b], s.seatOf[a]
	s.nodeOf[s.seatOf[a]], s.nodeOf[s.seatOf[b]] = a, b
}

// cost of a node's dear pairs if it sat there. A pair of the two that swap counts twice before and after alike.
func (s *swaps) cost(node, seat int) float64 {
	if seat >= len(s.problem.Places) {
		return 0
	}
	s.effort -= len(s.dear[node])
	cost := 0.0
	for _, pair := range s.dear[node] {
		if other := s.seatOf[pair.B]; other < len(s.problem.Places) && s.problem.Places[seat].Talks(s.problem.Places[other]) {
			cost += pair.Cost
		}
	}
	return cost
}
