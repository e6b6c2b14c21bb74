package machine

import (
	"slices"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/planner/policy"
)

// order is the order in which the holders of each layer of a plan reduce its gradients, a round for each run of layers with the
// same holders. When they do so is for the restorer to decide. O(stages * nodes), and a ring for each round.
func order(plan *events.Plan, s policy.Situation, layers []events.LayerProfile) events.Sync {
	var sync events.Sync
	cuts := cutsOf(plan)
	for i, first := range cuts[:len(cuts)-1] {
		held, bytes := events.Range{First: first, End: cuts[i+1]}, int64(0)
		for _, layer := range layers[held.First:held.End] {
			bytes += layer.GradientBytes
		}
		group := events.Group{Layers: held, Nodes: s.Ring(holders(plan, first), bytes)}
		sync.Rounds = append(sync.Rounds, events.Round{Groups: []events.Group{group}})
	}
	return sync
}

// cutsOf are the layers at which any pipeline has a stage begin or end, ascending.
func cutsOf(plan *events.Plan) []int {
	cuts := []int{plan.LayerCount()}
	for _, pipeline := range plan.Pipelines {
		for _, stage := range pipeline.Stages {
			cuts = append(cuts, stage.Layers.First)
		}
	}
	slices.Sort(cuts)
	return slices.Compact(cuts)
}

// holders are the nodes that train a layer, but for lost ones.
func holders(plan *events.Plan, layer int) (nodes []string) {
	for _, pipeline := range plan.Pipelines {
		for _, stage := range pipeline.Stages {
			isLost := func(reroute events.Reroute) bool { return reroute.From == stage.Node }
			if stage.Layers.First <= layer && layer < stage.Layers.End && !slices.ContainsFunc(plan.Reroutes, isLost) {
				nodes = append(nodes, stage.Node)
			}
		}
	}
	return nodes
}
