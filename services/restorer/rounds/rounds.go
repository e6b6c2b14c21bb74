// Package rounds orders the all-reduces of a step (Chameleon, the restorer of section IV, and figure 4). When pipelines
// are cut differently, the nodes that share one layer are not those that share the next, and a node can take part in one
// all-reduce at a time. Layers with the same holders are reduced together; the rest is colouring: what no node shares
// may run in the same round.
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

// Schedule is which all-reduces run together. Every layer is in one group of one round, and no node is twice in a round.
// The rounds with late layers come first, because the backward pass finishes those first.
type Schedule struct {
	Rounds  [][]Group // groups ascending by layers
	AtLeast int       // no schedule has fewer rounds
}

// Plan schedules the all-reduces of count layers in as few rounds as FewestRounds finds. Nodes are numbered in the order
// of holdings; ranges may overlap and come in any order. It fails when a range is out of bounds or a layer has no holder.
func Plan(count int, holdings [][]layers.Range) (Schedule, error) {
	groups, err := Groups(count, holdings)
	if err != nil {
		return Schedule{}, err
	}
	colouring, err := FewestRounds(len(groups), itemsOf(groups, len(holdings)))
	if err != nil {
		return Schedule{}, err
	}
	schedule := Schedule{Rounds: make([][]Group, colouring.Rounds), AtLeast: int(colouring.AtLeast)}
	for g, round := range colouring.RoundOf {
		schedule.Rounds[round] = append(schedule.Rounds[round], groups[g])
	}
	slices.SortFunc(schedule.Rounds, func(a, b []Group) int {
		return cmp.Compare(b[len(b)-1].Layers.End, a[len(a)-1].Layers.End)
	})
	return schedule, nil
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
