package machine

import (
	"fmt"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/restorer/layers"
	"github.com/reknit/reknit/services/restorer/rounds"
)

// schedule orders the all-reduces of the plan: layers with the same holders together, in as few rounds as possible.
func (r *restoration) schedule() error {
	var holdings [][]layers.Range
	var names []string
	for _, node := range r.plan.Nodes {
		if held, placed := r.plan.Holds(node.Node); placed {
			holdings = append(holdings, []layers.Range{layers.Range(held)})
			names = append(names, node.Node)
		}
	}
	schedule, err := rounds.Plan(len(r.Layers), holdings)
	if err != nil {
		return fmt.Errorf("all-reduce rounds: %w", err)
	}
	r.plan.Sync.Rounds = nil
	for _, round := range schedule.Rounds {
		var groups []events.Group
		for _, group := range round {
			var nodes []string
			for _, node := range group.Nodes {
				nodes = append(nodes, names[node])
			}
			groups = append(groups, events.Group{Layers: events.Layers(group.Layers), Nodes: nodes})
		}
		r.plan.Sync.Rounds = append(r.plan.Sync.Rounds, events.Round{Groups: groups})
	}
	return nil
}
