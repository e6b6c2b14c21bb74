// Package place decides who sits where: which node takes which stage of which pipeline, so that nodes that talk to one
// another in every step can do so, and as few layers as possible change hands (DT-FM places for the former alone).
package place

import (
	"fmt"
	"slices"

	"github.com/reknit/reknit/services/planner/estimate"
)

// Place is a stage of a pipeline and the layers it trains.
type Place struct {
	Pipeline, Stage int
	Layers          estimate.Range
}

// Problem is places to fill, at most as many as there are nodes.
type Problem struct {
	Places     []Place
	Holds      []estimate.Range              // per node: the layers it has now; empty for none
	LayerBytes []int64                       // per layer: what must be fetched with it
	Pair       func(a, b int) (cost float64) // of two nodes that talk in every step, symmetric; nil: all alike
}

// Assignment is who sits where.
type Assignment struct {
	NodeOf       []int   // per place
	PairCost     float64 // of all pairs that talk
	MissingBytes []int64 // per node: what it must fetch
}

// Assign fills the places: from the start that lets nodes keep most of what they hold, it swaps nodes while that lowers
// the cost of the pairs, or at equal cost the bytes to fetch. A swap is tried between any two nodes, idle ones too. The
// same problem has the same answer. O(nodes^2) to start; each sweep of swaps O(nodes^2 * neighbours), at most Sweeps.
func Assign(p Problem) (Assignment, error) {
	if len(p.Places) > len(p.Holds) {
		return Assignment{}, fmt.Errorf("place: expected at most as many places as the %d nodes, got %d", len(p.Holds), len(p.Places))
	}
	a := newArrangement(p)
	a.start()
	if p.Pair != nil {
		for sweep := 0; sweep < Sweeps && a.sweep(); sweep++ {
		}
	}
	return a.result(), nil
}

// Sweeps bounds the local search; on small networks two or three suffice.
const Sweeps = 20

// arrangement is a state of the search: which node is in which seat. Seats beyond the places are idle.
type arrangement struct {
	Problem
	nodeOf     []int   // per seat
	neighbours [][]int // per seat: seats it talks to
}

func newArrangement(p Problem) *arrangement {
	a := &arrangement{Problem: p, nodeOf: make([]int, len(p.Holds)), neighbours: make([][]int, len(p.Holds))}
	for i, one := range p.Places {
		for j, other := range p.Places {
			sameChain := one.Pipeline == other.Pipeline && (one.Stage-other.Stage == 1 || other.Stage-one.Stage == 1)
			sameLayers := one.Pipeline != other.Pipeline && one.Layers.Shared(other.Layers) > 0
			if sameChain || sameLayers {
				a.neighbours[i] = append(a.neighbours[i], j)
			}
		}
	}
	return a
}

// start gives each place in turn the free node that lacks least of it; ties go to the first.
func (a *arrangement) start() {
	free := make([]int, len(a.Holds))
	for i := range free {
		free[i] = i
	}
	for seat := range a.nodeOf {
		best := 0
		for i := range free {
			if a.missing(free[i], seat) < a.missing(free[best], seat) {
				best = i
			}
		}
		a.nodeOf[seat] = free[best]
		free = slices.Delete(free, best, best+1)
	}
}

// missing returns the bytes a node would have to fetch for a seat.
func (a *arrangement) missing(node, seat int) int64 {
	if seat >= len(a.Places) {
		return 0
	}
	bytes := int64(0)
	for layer := a.Places[seat].Layers.First; layer < a.Places[seat].Layers.End; layer++ {
		if layer < a.Holds[node].First || layer >= a.Holds[node].End {
			bytes += a.LayerBytes[layer]
		}
	}
	return bytes
}

// sweep tries every swap once and keeps those that help; it reports whether one did.
func (a *arrangement) sweep() bool {
	improved := false
	for i := range a.nodeOf {
		for j := i + 1; j < len(a.nodeOf); j++ {
			costBefore, bytesBefore := a.local(i, j)
			a.nodeOf[i], a.nodeOf[j] = a.nodeOf[j], a.nodeOf[i]
			cost, bytes := a.local(i, j)
			if cost < costBefore || cost == costBefore && bytes < bytesBefore {
				improved = true
			} else {
				a.nodeOf[i], a.nodeOf[j] = a.nodeOf[j], a.nodeOf[i]
			}
		}
	}
	return improved
}

// local returns the cost that involves two seats. A pair between them is counted twice before and after alike.
func (a *arrangement) local(i, j int) (cost float64, bytes int64) {
	for _, seat := range [2]int{i, j} {
		bytes += a.missing(a.nodeOf[seat], seat)
		for _, neighbour := range a.neighbours[seat] {
			cost += a.Pair(a.nodeOf[seat], a.nodeOf[neighbour])
		}
	}
	return cost, bytes
}

func (a *arrangement) result() Assignment {
	result := Assignment{NodeOf: a.nodeOf[:len(a.Places)], MissingBytes: make([]int64, len(a.Holds))}
	for seat, node := range result.NodeOf {
		result.MissingBytes[node] = a.missing(node, seat)
		for _, neighbour := range a.neighbours[seat] {
			if neighbour > seat && a.Pair != nil {
				result.PairCost += a.Pair(node, a.nodeOf[neighbour])
			}
		}
	}
	return result
}

// Classes groups the nodes that may trade places without changing any pair's cost: their costs to everybody else are
// equal. Each class is ascending, classes go by their first node. O(nodes^2 * classes).
func Classes(nodes int, pair func(a, b int) float64) [][]int {
	var classes [][]int
	for node := range nodes {
		found := slices.IndexFunc(classes, func(class []int) bool { return alike(class, node, nodes, pair) })
		if found < 0 {
			classes = append(classes, []int{node})
			continue
		}
		classes[found] = append(classes[found], node)
	}
	return classes
}

// alike reports whether a node's costs equal those of every member of a class, to everybody else; and whether all pairs
// inside the class cost the same, without which three nodes could not trade places at will.
func alike(class []int, node, nodes int, pair func(a, b int) float64) bool {
	if pair == nil {
		return true
	}
	first := class[0]
	for other := range nodes {
		if other != first && other != node && pair(first, other) != pair(node, other) {
			return false
		}
	}
	return len(class) < 2 || pair(first, class[1]) == pair(first, node)
}
