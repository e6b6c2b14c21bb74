package schedule

import (
	"fmt"
	"slices"
)

// Group is the nodes that hold the layers [First, End) and sum their gradients.
type Group struct {
	First, End int
	Nodes      []string
}

// Reduction is one all-reduce that a node takes part in.
type Reduction struct {
	Round int
	Group
}

// Reductions returns a node's all-reduces in the order of the rounds. A layer with one holder needs no group: it
// comes last, as a group of one. It is an error where a layer is in two groups with the node or none, or where a
// group is not exactly the holders of its layers. O(layers * nodes).
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
	return reductions, nil
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

// Slice returns the part [first, end) of a vector that is summed by a group's member: as even as whole elements
// allow, and all of it over the members.
func Slice(length, members, member int) (first, end int) {
	return length * member / members, length * (member + 1) / members
}
