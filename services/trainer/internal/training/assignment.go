package training

import (
	"fmt"
	"slices"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/trainer/internal/transport"
	"github.com/reknit/reknit/services/trainer/schedule"
)

// assignment is what a plan asks of one node.
type assignment struct {
	plan       *events.Plan
	layers     events.Range
	partitions []int // of their optimizer state
	routes     []schedule.Route
	reductions []schedule.Reduction
	peers      []transport.Peer
}

// assign derives a node's part from a plan. A plan that is not for this training, or does not fit together, is an
// error.
func assign(plan *events.Plan, config Config) (assignment, error) {
	a := assignment{plan: plan}
	if err := fits(plan, config); err != nil {
		return a, err
	}
	layout := layoutOf(plan)
	stage, placed := layout.Stage(config.Node)
	if !placed {
		return a, fmt.Errorf("pipelines: expected a place for node %q", config.Node)
	}
	a.layers = events.Range{First: stage.First, End: stage.End}
	a.partitions = layout.Partitions(config.Node)
	var err error
	if a.routes, err = layout.Routes(); err != nil {
		return a, err
	}
	if a.reductions, err = layout.Reductions(roundsOf(plan), config.Node); err != nil {
		return a, err
	}
	a.peers, err = peersOf(plan, config.Node, schedule.Peers(config.Node, a.routes, a.reductions))
	return a, err
}

func fits(plan *events.Plan, config Config) error {
	if got, want := plan.LayerCount(), config.Shape.Layers(); got != want {
		return fmt.Errorf("pipelines: expected %d layers, got %d", want, got)
	}
	if got, want := plan.Partitions(), config.Shape.Partitions; got != want {
		return fmt.Errorf("pipelines: expected %d partitions of the optimizer state, got %d", want, got)
	}
	if got := plan.Data; got.GlobalBatch != config.GlobalBatch || got.MicroBatch != config.MicroBatch {
		return fmt.Errorf("data: expected global batch %d and micro-batch %d, got %d and %d",
			config.GlobalBatch, config.MicroBatch, got.GlobalBatch, got.MicroBatch)
	}
	microBatches := 0
	for _, pipeline := range plan.Pipelines {
		microBatches += pipeline.MicroBatches
	}
	if want := config.GlobalBatch / config.MicroBatch; microBatches != want {
		return fmt.Errorf("pipelines: expected %d micro-batches, got %d", want, microBatches)
	}
	return nil
}

func layoutOf(plan *events.Plan) schedule.Layout {
	var layout schedule.Layout
	for _, pipeline := range plan.Pipelines {
		p := schedule.Pipeline{MicroBatches: pipeline.MicroBatches, Partitions: pipeline.Partitions}
		for _, stage := range pipeline.Stages {
			p.Stages = append(p.Stages,
				schedule.Stage{Node: stage.Node, First: stage.Layers.First, End: stage.Layers.End})
		}
		layout.Pipelines = append(layout.Pipelines, p)
	}
	for _, reroute := range plan.Reroutes {
		layout.Reroutes = append(layout.Reroutes, schedule.Reroute{
			From: reroute.From, To: reroute.To, MicroBatches: reroute.MicroBatches, First: reroute.Layers.First, End: reroute.Layers.End,
		})
	}
	return layout
}

func roundsOf(plan *events.Plan) [][]schedule.Group {
	rounds := make([][]schedule.Group, len(plan.Sync.Rounds))
	for i, round := range plan.Sync.Rounds {
		for _, group := range round.Groups {
			rounds[i] = append(rounds[i],
				schedule.Group{First: group.Layers.First, End: group.Layers.End, Nodes: group.Nodes})
		}
	}
	return rounds
}

func peersOf(plan *events.Plan, node string, names []string) ([]transport.Peer, error) {
	peers := make([]transport.Peer, len(names))
	for i, name := range names {
		member, ok := plan.Member(name)
		if !ok {
			return nil, fmt.Errorf("nodes: expected an address of %q", name)
		}
		peers[i] = transport.Peer{
			Node: name, Incarnation: member.Incarnation, Address: member.Address,
			Relayed: slices.Contains(plan.Relays, events.PairOf(node, name)),
		}
	}
	return peers, nil
}
