package main

import (
	"fmt"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/restorer/machine"
	"github.com/reknit/reknit/tests/bench/figures"
)

// manyLayersSeconds is how long a restoration may take of as many layers as a model may have.
const manyLayersSeconds = 2

// manyLayers measures the restoration of two replicas of tiny layers, of which one gives all to the other.
func manyLayers(r *figures.Report, _ settings) error {
	for layers := events.MostUnits / 16; layers <= events.MostUnits; layers *= 4 {
		request := twoReplicas(layers)
		var err error
		took := figures.Seconds(func() { _, err = machine.Restore(request) })
		if err != nil {
			return err
		}
		r.Add(figures.Row{Figure: fmt.Sprintf("whole restoration, %d layers", layers), Unit: "CPU s", Ours: took,
			Target: manyLayersSeconds})
	}
	return nil
}

func twoReplicas(layers int) events.RestorationRequest {
	all := events.Range{First: 0, End: layers}
	request := events.RestorationRequest{
		Negotiation: "g2-1", Units: make([]int64, layers), Holders: []events.Holder{{Node: "giver", Units: []events.Range{all}}},
	}
	for layer := range request.Units {
		request.Units[layer] = 1000
	}
	for _, node := range []string{"giver", "joiner"} {
		plan := &request.Proposal.Plan
		plan.Nodes = append(plan.Nodes, events.Member{Node: node})
		plan.Pipelines = append(plan.Pipelines,
			events.Pipeline{MicroBatches: 1, Stages: []events.Stage{{Node: node, Layers: all}}})
	}
	return request
}
