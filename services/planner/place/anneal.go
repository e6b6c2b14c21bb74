package place

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

// annealing improves a layout by swaps, first also by such that make it worse. Pieces of two pipelines are swapped, not
// only single nodes: where nodes of a region sit in a row, one moved alone makes two long links.
type annealing struct {
	layout *layout
	random *rand.Rand
	chains [][]int // seats by pipeline; the idle ones are a chain of their own
	chain  []int   // of a seat
	swaps  [][2]int
	fits   func(node, seat int) bool // nil: all do
	best   []int                     // the cheapest seen
	least  float64
}

func newAnnealing(l *layout) *annealing {
	a := &annealing{
		layout: l, random: rand.New(rand.NewPCG(1, 0)), chain: make([]int, len(l.nodeOf)), least: math.Inf(1),
	}
	var idle []int
	for first := range l.nodeOf {
		if l.traffic.prev[first] >= 0 {
			continue
		}
		if len(l.traffic.peers[first]) == 0 && l.traffic.next[first] < 0 {
			idle = append(idle, first)
			continue
		}
		var chain []int
		for seat := first; seat >= 0; seat = l.traffic.next[seat] {
			chain = append(chain, seat)
		}
		a.chains = append(a.chains, chain)
	}
	if len(idle) > 0 {
		a.chains = append(a.chains, idle)
	}
	for c, chain := range a.chains {
		for _, seat := range chain {
			a.chain[seat] = c
		}
	}
	a.keep()
	return a
}

func (a *annealing) keep() {
	if cost := a.layout.cost(); cost < a.least-rounding {
		a.least, a.best = cost, append(a.best[:0], a.layout.nodeOf...)
	}
}

// take starts again from a layout.
func (a *annealing) take(nodeOf []int) {
	copy(a.layout.nodeOf, nodeOf)
	a.layout.measure()
	a.keep()
}

// Temperatures are shares of the energy, the first and the last. From hot the search ends 0.4 % lower, in the mean of 24 drawn networks
// of 9 to 128 nodes, than from half of it.
const hot, cold = 0.01, 0.0004

// between is after how many moves groups are put in their best order and pipelines are reseated; of many nodes it takes longer, and
// is done less often.
const between, eachBetween = 1000, 16

// cool makes so many moves while the temperature falls.
func (a *annealing) cool(moves int, slope float64) {
	a.layout.slope = slope
	between := max(between, eachBetween*len(a.layout.nodeOf))
	rounds := max(1, moves/between)
	share, falling := hot, math.Pow(cold/hot, 1/float64(rounds))
	for range rounds {
		a.run(min(moves, between), share)
		a.arrange()
		share *= falling
	}
}

// arrange puts the groups of a grid in their best order, and reseats its pipelines.
func (a *annealing) arrange() {
	if a.fits == nil && a.layout.embed() {
		a.keep()
	}
	if a.fits == nil && a.layout.reseat() {
		a.keep()
	}
}

// run makes so many moves at one temperature.
func (a *annealing) run(moves int, share float64) {
	a.layout.measure()
	energy := a.layout.energy()
	for range moves {
		if !a.move() {
			continue
		}
		now := a.layout.energy()
		if now <= energy || a.random.Float64() < math.Exp((energy-now)/(share*energy)) {
			energy = now
			a.layout.journal = a.layout.journal[:0]
			a.keep()
			continue
		}
		a.revert()
	}
}

// move swaps two seats, of one pipeline, of one stage or any, and as many of those that follow as chance will.
func (a *annealing) move() bool {
	i := a.random.IntN(len(a.layout.nodeOf))
	j := a.random.IntN(len(a.layout.nodeOf))
	length := 1
	switch which := a.random.IntN(10); {
	case which < 3:
		j = pick(a.random, a.layout.traffic.columns[a.layout.traffic.column[i]])
	case which < 6:
		j = pick(a.random, a.chains[a.chain[i]])
	}
	for a.chain[i] != a.chain[j] && length < longestPiece && a.random.IntN(2) == 0 {
		length++
	}
	a.swaps = a.swaps[:0]
	for ; length > 0 && i >= 0 && j >= 0 && i != j; length-- {
		a.layout.swap(i, j)
		a.layout.settle(i, j)
		a.swaps = append(a.swaps, [2]int{i, j})
		if a.fits != nil && (!a.fits(a.layout.nodeOf[i], i) || !a.fits(a.layout.nodeOf[j], j)) {
			a.revert()
			return false
		}
		i, j = a.layout.traffic.next[i], a.layout.traffic.next[j]
	}
	return len(a.swaps) > 0
}

const longestPiece = 8

func pick(random *rand.Rand, from []int) int { return from[random.IntN(len(from))] }

// revert undoes the last move.
func (a *annealing) revert() {
	for k := len(a.swaps) - 1; k >= 0; k-- {
		i, j := a.swaps[k][0], a.swaps[k][1]
		a.layout.nodeOf[i], a.layout.nodeOf[j] = a.layout.nodeOf[j], a.layout.nodeOf[i]
	}
	a.layout.undo()
}

// search cools some starts, then the better half of what comes out, and so on, for so many moves altogether (successive halving:
// Jamieson and Talwalkar, AISTATS 2016).
func (a *annealing) search(starts [][]int, moves int) {
	rounds := 2
	if a.isThorough(moves) {
		rounds = 6
	}
	best, least := a.best, a.least
	for round := range rounds {
		layouts := make([]annealed, len(starts))
		for k, start := range starts {
			layouts[k] = a.cooled(start, moves/rounds/len(starts), slopes[(k+round)%2])
		}
		slices.SortStableFunc(layouts, func(a, b annealed) int { return cmp.Compare(a.cost, b.cost) })
		if layouts[0].cost < least-rounding {
			best, least = layouts[0].nodeOf, layouts[0].cost
		}
		starts = starts[:0]
		for _, layout := range layouts[:(len(layouts)+1)/2] {
			starts = append(starts, layout.nodeOf)
		}
	}
	a.best, a.least = best, least
}

// annealed is a layout that the search came to.
type annealed struct {
	nodeOf []int
	cost   float64
}

// cooled is the cheapest layout seen on the way from a start.
func (a *annealing) cooled(start []int, moves int, slope float64) annealed {
	a.best, a.least = nil, math.Inf(1)
	a.take(start)
	a.arrange()
	a.cool(moves, slope)
	return annealed{a.best, a.least}
}

// isThorough reports whether there are moves enough to try several sorts of starts.
func (a *annealing) isThorough(moves int) bool { return moves >= 150*len(a.layout.nodeOf) }

var slopes = [2]float64{0.6, 0.3} // of the energy; neither is the better one on all networks
