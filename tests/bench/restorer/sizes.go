package main

import (
	"fmt"
	"math/rand/v2"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/restorer/machine"
	"github.com/reknit/reknit/tests/bench/figures"
)

// shardSizes measures shards of the default size beside those of Chaos's divisibility chain: how long a join is predicted to take,
// and what it costs to plan. Neither is judged: a chain takes a per cent longer by intention.
func shardSizes(r *figures.Report, _ settings) error {
	for _, mebibytes := range []int64{5, 178, 3050} {
		request := joinOverDrawnLinks(mebibytes<<20, rand.New(rand.NewPCG(uint64(mebibytes), 7)))
		var plans [2]events.Plan
		var took [2]float64
		for i, size := range []machine.ShardSize{machine.Parts, machine.Chain} {
			var restored events.Restoration
			var err error
			took[i] = figures.Seconds(func() { restored, err = machine.Settings{ShardSize: size}.Restore(request) })
			if err != nil {
				return err
			}
			plans[i] = restored.Plan
		}
		name := fmt.Sprintf("parts of %d KiB, %d MiB", plans[0].Migration.ShardBytes>>10, mebibytes)
		chain := fmt.Sprintf("chain of %d KiB", plans[1].Migration.ShardBytes>>10)
		r.Add(figures.Row{Figure: "join, " + name, Unit: "s", Ours: plans[0].Predicted.TransitionSeconds,
			Baseline: plans[1].Predicted.TransitionSeconds, BaselineName: chain})
		r.Add(figures.Row{Figure: "to plan it, " + name, Unit: "CPU s", Ours: took[0], Baseline: took[1], BaselineName: chain})
	}
	return nil
}

// joinOverDrawnLinks has a node take a state of twelve units from four, over links as the Chaos papers draw them (section VI-A).
func joinOverDrawnLinks(bytes int64, random *rand.Rand) events.RestorationRequest {
	const units = 12
	all := events.Range{First: 0, End: units}
	request := events.RestorationRequest{Negotiation: "g2-1"}
	for range units {
		request.Units = append(request.Units, bytes/units)
	}
	plan := &request.Proposal.Plan
	for i := range 5 {
		node := fmt.Sprint("n", i)
		plan.Nodes = append(plan.Nodes, events.Member{Node: node})
		plan.Pipelines = append(plan.Pipelines, events.Pipeline{MicroBatches: 1, Stages: []events.Stage{{Node: node, Layers: all}}})
		if i == 4 {
			break // it joins
		}
		request.Holders = append(request.Holders, events.Holder{Node: node, Units: []events.Range{all}})
		request.Links = append(request.Links, events.Link{Measurement: events.Measurement{From: node, To: "n4",
			RoundTripSeconds: 0.02 + 0.02*random.Float64(), BandwidthBytesPerSecond: (100 + 900*random.Float64()) * 1e6 / 8}})
	}
	return request
}
