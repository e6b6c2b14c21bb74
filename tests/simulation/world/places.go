package world

import (
	"maps"
	"slices"

	"github.com/reknit/reknit/events"
)

// places are what a plan says of each node, looked up once and not in each step of each node.
type places struct {
	crews     [][]string // by pipeline: who does its passes
	pipelines map[string][]int
	groups    map[string][]int // whose reductions a node takes part in, in the order of the rounds
	before    [][]int          // by group: those of earlier rounds with a node of it
	layers    map[string]events.Range
	replicas  bool // each node trains a whole one, and nobody stands in for another
	dealt     *events.Plan
}

// placesIn returns the places of a plan, and forgets those of plans that nobody trains under any more.
func (w *World) placesIn(plan *events.Plan) *places {
	if known := w.places[plan.Generation]; known != nil {
		return known
	}
	const apart = 4 // generations, of nodes that train at a time
	maps.DeleteFunc(w.places, func(generation uint64, _ *places) bool { return generation+apart < plan.Generation })
	maps.DeleteFunc(w.collectives, func(name collectiveName, _ *collective) bool { return name.generation+apart < plan.Generation })
	w.places[plan.Generation] = newPlaces(plan)
	return w.places[plan.Generation]
}

func newPlaces(plan *events.Plan) *places {
	l := &places{pipelines: map[string][]int{}, groups: map[string][]int{}, layers: map[string]events.Range{}, dealt: plan.Dealt()}
	l.replicas = len(plan.Reroutes) == 0 && !slices.ContainsFunc(plan.Pipelines, staged)
	members := map[string]bool{}
	for _, member := range plan.Nodes {
		members[member.Node] = true
	}
	for i, pipeline := range plan.Pipelines {
		crew := crewOf(plan, pipeline, members)
		l.crews = append(l.crews, crew)
		for _, node := range crew {
			l.pipelines[node] = append(l.pipelines[node], i)
		}
		for _, stage := range pipeline.Stages {
			if _, known := l.layers[stage.Node]; !known {
				l.layers[stage.Node] = stage.Layers
			}
		}
	}
	for _, round := range plan.Sync.Rounds {
		earlier := maps.Clone(l.groups)
		for _, group := range round.Groups {
			for _, node := range group.Nodes {
				l.groups[node] = append(slices.Clip(l.groups[node]), len(l.before))
			}
			l.before = append(l.before, before(earlier, group.Nodes))
		}
	}
	return l
}

// crewOf is who does the passes of a pipeline: its stages' nodes, and who stands in for those that are lost.
func crewOf(plan *events.Plan, pipeline events.Pipeline, members map[string]bool) []string {
	var crew []string
	add := func(node string) {
		if !slices.Contains(crew, node) {
			crew = append(crew, node)
		}
	}
	for _, stage := range pipeline.Stages {
		if members[stage.Node] {
			add(stage.Node)
			continue
		}
		for _, reroute := range plan.Reroutes {
			if reroute.From == stage.Node {
				add(reroute.To)
			}
		}
	}
	return crew
}

// before returns the groups of earlier rounds that some of the nodes are in.
func before(earlier map[string][]int, nodes []string) []int {
	var groups []int
	for _, node := range nodes {
		groups = append(groups, earlier[node]...)
	}
	slices.Sort(groups)
	return slices.Compact(groups)
}
