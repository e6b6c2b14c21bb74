// Package schedule decides, within one step under one plan, which node computes what and when: the stages each
// micro-batch passes, the order in which a node runs them, and whom it sums gradients with.
//
// It is pure: every node computes the same answer from the same plan, so nothing about it needs to be agreed on.
package schedule

import (
	"fmt"
	"slices"
)

// Stage is a node and the layers [First, End) it runs.
type Stage struct {
	Node       string
	First, End int
}

// Pipeline is a chain of stages and how many micro-batches of a step it trains.
type Pipeline struct {
	MicroBatches int
	Stages       []Stage
	Partitions   []int // of its layers' optimizer state, that its nodes keep; none anywhere where that is whole
}

// Reroute gives some micro-batches of a lost node to a node that holds the same layers in another pipeline.
type Reroute struct {
	From, To     string
	MicroBatches int
	First, End   int // of the layers; an end of 0: all that the other holds
}

// Layout is who holds what and trains how much of a step.
type Layout struct {
	Pipelines []Pipeline
	Reroutes  []Reroute
}

// Route is the stages that one micro-batch passes forward, and then backward in reverse. Two stages in a row are
// on different nodes.
type Route []Stage

// Routes returns the route of every micro-batch of a step: the first pipeline trains the first ones, and so on.
//
// The stage of a lost node is run by the nodes it is rerouted to. Layer by layer, those that hold the layer take
// their micro-batches one after the other, in the order of the reroutes: as a plan says whose samples are whose. So a
// lost stage may be covered by several nodes that each hold a part of it. It is an error where the reroutes that hold
// a layer do not add up to the pipeline's micro-batches. O(micro-batches * layers * reroutes).
func (l Layout) Routes() ([]Route, error) {
	var routes []Route
	for i, pipeline := range l.Pipelines {
		first := len(routes)
		routes = append(routes, make([]Route, pipeline.MicroBatches)...)
		for _, stage := range pipeline.Stages {
			if err := l.extend(routes[first:], stage); err != nil {
				return nil, fmt.Errorf("pipeline %d: %w", i, err)
			}
		}
	}
	return routes, nil
}

// extend adds a pipeline's next stage to the routes of its micro-batches.
func (l Layout) extend(routes []Route, stage Stage) error {
	if !l.lost(stage.Node) {
		for k := range routes {
			routes[k] = routes[k].then(stage)
		}
		return nil
	}
	for layer := stage.First; layer < stage.End; layer++ {
		takers, err := l.takers(stage.Node, layer, len(routes))
		if err != nil {
			return err
		}
		for k, node := range takers {
			routes[k] = routes[k].then(Stage{Node: node, First: layer, End: layer + 1})
		}
	}
	return nil
}

// then appends a stage, or lengthens the last one where the same node goes on.
func (r Route) then(next Stage) Route {
	if last := len(r) - 1; last >= 0 && r[last].Node == next.Node {
		r[last].End = next.End
		return r
	}
	return append(r, next)
}

// takers returns for each micro-batch of a lost stage the node that runs one of its layers.
func (l Layout) takers(lost string, layer, microBatches int) ([]string, error) {
	var nodes []string
	for _, reroute := range l.Reroutes {
		isOf := reroute.End == 0 || reroute.First <= layer && layer < reroute.End
		if isOf && reroute.From == lost && l.holds(reroute.To, layer) {
			nodes = append(nodes, slices.Repeat([]string{reroute.To}, reroute.MicroBatches)...)
		}
	}
	if len(nodes) != microBatches {
		return nil, fmt.Errorf(
			"layer %d of lost node %q: expected its %d micro-batches to be rerouted to holders of the layer, got %d",
			layer, lost, microBatches, len(nodes))
	}
	return nodes, nil
}

// lost reports whether a node's micro-batches are run by others.
func (l Layout) lost(node string) bool {
	for _, reroute := range l.Reroutes {
		if reroute.From == node {
			return true
		}
	}
	return false
}

// Stage returns the place of a node; ok is false for one that is lost or has none.
func (l Layout) Stage(node string) (stage Stage, ok bool) {
	if l.lost(node) {
		return Stage{}, false
	}
	for _, pipeline := range l.Pipelines {
		for _, stage := range pipeline.Stages {
			if stage.Node == node {
				return stage, true
			}
		}
	}
	return Stage{}, false
}

func (l Layout) holds(node string, layer int) bool {
	stage, ok := l.Stage(node)
	return ok && stage.First <= layer && layer < stage.End
}

// Peers returns the nodes that a node exchanges messages with in a step, each once, in order of first use: its neighbours on the
// micro-batches' routes and in the rings of its reductions.
func Peers(node string, routes []Route, reductions []Reduction) []string {
	var peers []string
	seen := map[string]bool{node: true}
	add := func(peer string) {
		if !seen[peer] {
			seen[peer] = true
			peers = append(peers, peer)
		}
	}
	for _, route := range routes {
		for hop := 1; hop < len(route); hop++ {
			if route[hop-1].Node == node {
				add(route[hop].Node)
			} else if route[hop].Node == node {
				add(route[hop-1].Node)
			}
		}
	}
	for _, reduction := range reductions {
		if ring := reduction.From(node); len(ring) > 1 {
			add(ring[1])
			add(ring[len(ring)-1])
		}
	}
	return peers
}
