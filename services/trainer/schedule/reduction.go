package schedule

import (
	"fmt"
	"slices"
)

// Group is the nodes that hold the layers [First, End) and sum their gradients, in the order of a ring.
type Group struct {
	First, End int
	Nodes      []string
}

// From returns the members in the order of the ring, from one of them on: the next one is to whom it sends, the last one from
// whom it receives.
func (g Group) From(node string) []string {
	at := slices.Index(g.Nodes, node)
	return slices.Concat(g.Nodes[at:], g.Nodes[:at])
}

// Reduction is one all-reduce that a node takes part in.
type Reduction struct {
	Round int
	Group
	// Keepers are the members that keep each partition of the layers' optimizer state; all of them, once, where it is
	// whole.
	Keepers [][]string
}

// Piece is the elements [First, End) of a layer's gradients, all of one partition.
type Piece struct{ Partition, First, End int }

// Pieces returns what a member sums of a layer's gradients of so many elements: an even part of each partition that it
// keeps.
func (r Reduction) Pieces(length int, node string) []Piece {
	var pieces []Piece
	for partition, keepers := range r.Keepers {
		member := slices.Index(keepers, node)
		if member < 0 {
			continue
		}
		first, end := slice(length, len(r.Keepers), partition)
		from, to := slice(end-first, len(keepers), member)
		pieces = append(pieces, Piece{Partition: partition, First: first + from, End: first + to})
	}
	return pieces
}

// Keeps reports whether a member keeps a partition.
func (r Reduction) Keeps(node string, partition int) bool {
	return slices.Contains(r.Keepers[partition], node)
}

// Spreads reports whether some members do not keep all partitions, so that others have to tell them the parameters.
func (r Reduction) Spreads() bool {
	return slices.ContainsFunc(r.Keepers, func(keepers []string) bool { return len(keepers) < len(r.Nodes) })
}

// Reductions returns a node's all-reduces in the order of the rounds. A layer with one holder needs no group: it
// comes last, as a group of one. It is an error where a layer is in two groups with the node or none, or where a
// group is not exactly the holders of its layers, or where none of them keeps some partition. O(layers * nodes).
func (l Layout) Reductions(rounds [][]Group, node string) ([]Reduction, error) {
	stage, ok := l.Stage(node)
	if !ok {
		return nil, nil
	}
	var reductions []Reduction
	covered := make(map[int]bool)
	for round, groups := range rounds {
		for _, group := range groups {
			if !slices.Contains(group.Nodes, node) {
				continue
			}
			if err := l.check(group, covered); err != nil {
				return nil, fmt.Errorf("round %d: %w", round, err)
			}
			reductions = append(reductions, Reduction{Round: round, Group: group})
		}
	}
	for layer := stage.First; layer < stage.End; layer++ {
		if covered[layer] {
			continue
		}
		alone := Group{First: layer, End: layer + 1, Nodes: []string{node}}
		if err := l.check(alone, covered); err != nil {
			return nil, err
		}
		reductions = append(reductions, Reduction{Round: len(rounds), Group: alone})
	}
	for i := range reductions {
		var err error
		if reductions[i].Keepers, err = l.keepers(reductions[i].Group); err != nil {
			return nil, err
		}
	}
	return reductions, nil
}

// keepers returns the members of a group by the partitions that their pipelines keep, in the group's order.
func (l Layout) keepers(group Group) ([][]string, error) {
	count := 0
	for _, pipeline := range l.Pipelines {
		for _, partition := range pipeline.Partitions {
			count = max(count, partition+1)
		}
	}
	if count == 0 {
		return [][]string{group.Nodes}, nil
	}
	keepers := make([][]string, count)
	for _, node := range group.Nodes {
		for _, partition := range l.Partitions(node) {
			keepers[partition] = append(keepers[partition], node)
		}
	}
	for partition, nodes := range keepers {
		if len(nodes) == 0 {
			return nil, fmt.Errorf("layers [%d, %d): expected partition %d at one of %q",
				group.First, group.End, partition, group.Nodes)
		}
	}
	return keepers, nil
}

// Partitions returns those that a node keeps, of its layers' optimizer state.
func (l Layout) Partitions(node string) []int {
	for _, pipeline := range l.Pipelines {
		if slices.ContainsFunc(pipeline.Stages, func(stage Stage) bool { return stage.Node == node }) {
			return pipeline.Partitions
		}
	}
	return nil
}

// check reports a group that is not the holders of its layers, or layers covered twice, and marks them.
func (l Layout) check(group Group, covered map[int]bool) error {
	if group.First >= group.End {
		return fmt.Errorf("group of %q: expected layers, got [%d, %d)", group.Nodes, group.First, group.End)
	}
	nodes := slices.Sorted(slices.Values(group.Nodes))
	for layer := group.First; layer < group.End; layer++ {
		if holders := l.holders(layer); !slices.Equal(nodes, holders) {
			return fmt.Errorf("layer %d: expected a group of its holders %q, got %q", layer, holders, nodes)
		}
		if covered[layer] {
			return fmt.Errorf("layer %d: expected one group with it, got two", layer)
		}
		covered[layer] = true
	}
	return nil
}

// holders returns the nodes that hold a layer, sorted.
func (l Layout) holders(layer int) []string {
	var nodes []string
	for _, pipeline := range l.Pipelines {
		for _, stage := range pipeline.Stages {
			if stage.First <= layer && layer < stage.End && !l.lost(stage.Node) {
				nodes = append(nodes, stage.Node)
			}
		}
	}
	slices.Sort(nodes)
	return nodes
}

// slice returns the part [first, end) of a vector that falls to a member: as even as whole elements allow, and all of
// it over the members.
func slice(length, members, member int) (first, end int) {
	return length * member / members, length * (member + 1) / members
}
