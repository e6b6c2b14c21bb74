// Package place decides who sits where: which node takes which stage of which pipeline, so that nodes that talk to one
// another in every step can do so, and as few layers as possible change hands (DT-FM places for the former alone).
package place

import (
	"fmt"

	"github.com/reknit/reknit/services/planner/estimate"
)

// Place is a stage of a pipeline and the layers it trains.
type Place struct {
	Pipeline, Stage int
	Layers          estimate.Range
}

// Talks reports whether the nodes of two places talk in every step: neighbours in a pipeline, and holders of one layer.
func (p Place) Talks(other Place) bool {
	if p.Pipeline == other.Pipeline {
		return p.Stage-other.Stage == 1 || other.Stage-p.Stage == 1
	}
	return p.Layers.Shared(other.Layers) > 0
}

// Problem is places to fill, at most as many as there are nodes.
type Problem struct {
	Places      []Place
	NeedBytes   []int64          // per place: the memory it takes; nil: nothing
	Holds       []estimate.Range // per node: the layers it has now; empty for none
	MemoryBytes []int64          // per node: what it may fill; nil: enough
	NeedSpeed   []float64        // per place: the least of who may sit there; nil: any
	Speed       []float64        // per node; nil: enough
	LayerBytes  []int64          // per layer: what must be fetched with it
	Dear        []Pair           // pairs of nodes that had better not talk
}

// Pair is two nodes and what it costs where they talk.
type Pair struct {
	A, B int
	Cost float64
}

// Assignment is who sits where.
type Assignment struct {
	NodeOf       []int   // per place
	PairCost     float64 // of all dear pairs that talk
	MissingBytes []int64 // per node: what it must fetch
}

// Assign fills the places so that the node with most to fetch has as little as possible, and then all together. The
// assignment is exact and takes O(types^3) however many nodes there are, a type being the nodes that hold the same
// layers, or the places that need the same. It then swaps nodes, if pairs are dear, while that lowers their cost, or at
// equal cost the bytes to fetch, until no swap helps or its effort is spent. The same problem has the same answer.
//
// It fails where there are more places than nodes, or no node with the memory and the speed for some place.
func Assign(p Problem) (Assignment, error) {
	if len(p.Places) > len(p.Holds) {
		return Assignment{}, fmt.Errorf("place: expected at most as many places as the %d nodes, got %d", len(p.Holds),
			len(p.Places))
	}
	nodeOf, ok := p.leastMoved()
	if !ok {
		return Assignment{}, fmt.Errorf("place: %d places: too few nodes with the memory and the speed they need", len(p.Places))
	}
	if len(p.Dear) > 0 {
		newSwaps(p, nodeOf).descend()
	}
	return p.result(nodeOf), nil
}

// missing returns the bytes a node would have to fetch for a seat. Seats beyond the places are idle.
func (p Problem) missing(node, seat int) int64 {
	if seat >= len(p.Places) {
		return 0
	}
	bytes, has := int64(0), p.Holds[node]
	for layer := p.Places[seat].Layers.First; layer < p.Places[seat].Layers.End; layer++ {
		if layer < has.First || layer >= has.End {
			bytes += p.LayerBytes[layer]
		}
	}
	return bytes
}

// fits reports whether a node has the memory and the speed for a seat.
func (p Problem) fits(node, seat int) bool {
	if seat >= len(p.Places) {
		return true
	}
	enough := p.NeedBytes == nil || p.MemoryBytes == nil || p.NeedBytes[seat] <= p.MemoryBytes[node]
	return enough && (p.NeedSpeed == nil || p.Speed == nil || p.NeedSpeed[seat] <= p.Speed[node])
}

func (p Problem) result(nodeOf []int) Assignment {
	result := Assignment{NodeOf: nodeOf[:len(p.Places)], MissingBytes: make([]int64, len(p.Holds))}
	seatOf := make([]int, len(p.Holds))
	for seat, node := range nodeOf {
		seatOf[node] = seat
		result.MissingBytes[node] = p.missing(node, seat)
	}
	for _, pair := range p.Dear {
		if a, b := seatOf[pair.A], seatOf[pair.B]; max(a, b) < len(p.Places) && p.Places[a].Talks(p.Places[b]) {
			result.PairCost += pair.Cost
		}
	}
	return result
}
