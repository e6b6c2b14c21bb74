// Package rounds orders the all-reduces of a step (Chameleon, the restorer of section IV, and figure 4). When pipelines
// are cut differently, the nodes that share one layer are not those that share the next, and a node can take part in
// one all-reduce at a time. Layers with the same holders may be reduced together; the rest is colouring: what no node
// shares may run in the same round, and a round lasts as long as its longest all-reduce.
package rounds

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/reknit/reknit/services/restorer/layers"
)

// Group is one all-reduce: a run of layers and the nodes that all hold all of it, ascending.
type Group struct {
	Layers layers.Range
	Nodes  []int
}

// Schedule is which all-reduces run together. Every layer is in one group of one round, and no node is twice in a
// round. The rounds with late layers come first, because the backward pass finishes those first.
type Schedule struct {
	Rounds      [][]Group // groups ascending by layers
	Nanoseconds int64     // sum of the longest groups of the rounds
	AtLeast     int64     // no schedule of these groups takes less
}

// effort bounds the search of a colouring, in items looked at: 1 ms, unless the first one alone takes longer. Ten times as much
// finds nothing shorter on pipelines of 2 to 16 stages (TestTenTimesTheSearchFindsNothingShorter).
const effort = 100_000

// mostPieces bounds into how many groups the layers are cut apart, beside those that their holders cut: colouring takes
// about the square of the groups, and each is named in the plan with its nodes.
const mostPieces = 256

// Plan schedules the all-reduces of count layers so that the longest groups of the rounds take as little together as
// Colour finds: either with layers of the same holders in one group, or with each layer in a group of its own, which
// fills the rounds better but begins more often. A group has a few layers if there are more than mostPieces. It takes the former
// where both take as long. Nodes are numbered in the order of holdings; ranges may overlap and come in any order. takes
// says how many nanoseconds a group needs.
//
// O(ranges log ranges + layers * holders of a layer), and the colourings of at most mostPieces more groups than there are
// runs of layers with the same holders. No colouring apart is tried where the busiest node alone takes as long as all do
// together.
//
// It fails when a range is out of bounds, a layer has no holder or a group takes less than no time.
func Plan(count int, holdings [][]layers.Range, takes func(Group) int64) (Schedule, error) {
	groups, err := Groups(count, holdings)
	if err != nil {
		return Schedule{}, err
	}
	together, err := schedule(groups, len(holdings), takes)
	if err != nil || len(groups) == count || together.Nanoseconds == 0 {
		return together, err
	}
	pieces := cutApart(groups, (count+mostPieces-1)/mostPieces)
	weights, devices := weigh(pieces, takes), itemsOf(pieces, len(holdings))
	if heaviestDevice(weights, devices) >= together.Nanoseconds {
		return together, nil
	}
	apart, err := colourGroups(pieces, weights, devices)
	if err != nil || apart.Nanoseconds >= together.Nanoseconds {
		return together, err
	}
	return apart, nil
}

func schedule(groups []Group, nodes int, takes func(Group) int64) (Schedule, error) {
	return colourGroups(groups, weigh(groups, takes), itemsOf(groups, nodes))
}

// weigh returns how many nanoseconds each group takes.
func weigh(groups []Group, takes func(Group) int64) []int64 {
	weights := make([]int64, len(groups))
	for g, group := range groups {
		weights[g] = takes(group)
	}
	return weights
}

func colourGroups(groups []Group, weights []int64, devices [][]int) (Schedule, error) {
	colouring, err := Colour(weights, devices, effort)
	if err != nil {
		return Schedule{}, err
	}
	s := Schedule{Rounds: make([][]Group, colouring.Rounds), Nanoseconds: colouring.Cost, AtLeast: colouring.AtLeast}
	for g, round := range colouring.RoundOf {
		s.Rounds[round] = append(s.Rounds[round], groups[g])
	}
	slices.SortFunc(s.Rounds, func(a, b []Group) int {
		return cmp.Compare(b[len(b)-1].Layers.End, a[len(a)-1].Layers.End)
	})
	return s, nil
}

// cutApart cuts groups into pieces of so many layers, the last of a group may have fewer.
func cutApart(groups []Group, layersOfPiece int) (pieces []Group) {
	for _, group := range groups {
		for first := group.Layers.First; first < group.Layers.End; first += layersOfPiece {
			end := min(first+layersOfPiece, group.Layers.End)
			pieces = append(pieces, Group{Layers: layers.Range{First: first, End: end}, Nodes: group.Nodes})
		}
	}
	return pieces
}

// Groups returns the longest runs of layers that have the same holders, in order. O(ranges * log(ranges) + output).
func Groups(count int, holdings [][]layers.Range) ([]Group, error) {
	held := make([][]layers.Range, len(holdings))
	cuts := []int{0, count}
	for node, ranges := range holdings {
		set, err := layers.NewSet(count, ranges...)
		if err != nil {
			return nil, fmt.Errorf("node %d: %w", node, err)
		}
		held[node] = set.Ranges()
		for _, r := range held[node] {
			cuts = append(cuts, r.First, r.End)
		}
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	groups := make([]Group, len(cuts)-1)
	for g := range groups {
		groups[g].Layers = layers.Range{First: cuts[g], End: cuts[g+1]}
	}
	for node, ranges := range held {
		for _, r := range ranges {
			first, _ := slices.BinarySearch(cuts, r.First)
			for g := first; cuts[g] < r.End; g++ {
				groups[g].Nodes = append(groups[g].Nodes, node)
			}
		}
	}
	for _, group := range groups {
		if len(group.Nodes) == 0 {
			return nil, fmt.Errorf("layer %d: no node holds it", group.Layers.First)
		}
	}
	return groups, nil
}

// itemsOf lists, per node, the groups it is in, ascending.
func itemsOf(groups []Group, nodes int) [][]int {
	items := make([][]int, nodes)
	for g, group := range groups {
		for _, node := range group.Nodes {
			items[node] = append(items[node], g)
		}
	}
	return items
}
