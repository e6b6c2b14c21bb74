package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/detect"
	monitor "github.com/reknit/reknit/services/monitor/machine"
	"github.com/reknit/reknit/tests/bench/figures"
	"github.com/reknit/reknit/tests/papers/dtfm"
)

// shuffles is in how many orders the devices of a network get their names.
const shuffles = 3

// Targets are how many times the best cost known, or proven, the first plan of the planner may cost.
const (
	ofProven = 1.01
	ofKnown  = 1.05
)

// knowing tells the planner of a link.
type knowing func(from, to string, roundTrip, rate float64) events.Measurement

// stated is a link as a file states it.
func stated(from, to string, roundTrip, rate float64) events.Measurement {
	return events.Measurement{
		From: from, To: to, RoundTripSeconds: roundTrip, BandwidthBytesPerSecond: rate, Uncertainty: events.Exact,
	}
}

// probedFiveTimes is a link as the monitor tells of it after five probes that scatter by a twentieth.
func probedFiveTimes(random *rand.Rand) knowing {
	const probes, scatter = 5, 0.05
	untold := monitor.Defaults("").Untold
	return func(from, to string, roundTrip, rate float64) events.Measurement {
		var known detect.Estimate
		for range probes {
			known = known.Probed(detect.Estimate{
				RoundTripSeconds: roundTrip * (1 + scatter*random.NormFloat64()), BytesPerSecond: rate * (1 + scatter*random.NormFloat64()),
			}, untold)
		}
		told := events.Measurement{
			From: from, To: to, RoundTripSeconds: known.RoundTripSeconds, BandwidthBytesPerSecond: known.BytesPerSecond,
			Uncertainty: known.Uncertainty,
		}
		return told.Rounded()
	}
}

// request asks for a first plan on a network whose devices are named in a drawn order; named is the device of each name.
func (n network) request(random *rand.Rand, link knowing) (request events.PlanRequest, named map[string]int) {
	g := n.grid
	request = events.PlanRequest{
		Negotiation: "g1", Cluster: "c", Generation: 1, SecondsBetweenFailures: 86400,
		Job: events.Job{
			Digest: events.Digest([]byte("job")), GlobalBatch: g.Pipelines, MicroBatch: 1,
			Pipelines: events.Bounds{Min: g.Pipelines, Max: g.Pipelines}, Stages: events.Bounds{Min: g.Stages, Max: g.Stages},
		},
	}
	for range g.Stages {
		request.Job.Layers = append(request.Job.Layers, events.LayerProfile{
			ParameterBytes: int64(g.GradientBytes), GradientBytes: int64(g.GradientBytes), OutputBytes: int64(g.ActivationBytes),
			ForwardSeconds: 0.06, BackwardSeconds: 0.12,
		})
	}
	named = map[string]int{}
	devices := random.Perm(g.Pipelines * g.Stages)
	for i, device := range devices {
		name := fmt.Sprintf("n%03d", i)
		named[name] = device
		member := events.Member{Node: name, Incarnation: "a", Address: name + ":1"}
		request.Nodes = append(request.Nodes, events.Device{Member: member, MemoryBytes: 64e9, SpeedFactor: 1})
	}
	for i, from := range devices {
		for j, to := range devices {
			if i == j {
				continue
			}
			measured := link(request.Nodes[i].Node, request.Nodes[j].Node, 2*g.Network.DelaySeconds[from][to], g.Network.BytesPerSecond[from][to])
			request.Links = append(request.Links, events.Link{Measurement: measured})
		}
	}
	return request, named
}

// planned is DT-FM's cost of the planner's first plan.
func (n network) planned(random *rand.Rand, link knowing) (float64, error) {
	request, named := n.request(random, link)
	proposal, err := planner.Plan(request)
	if err != nil {
		return 0, err
	}
	return n.costOf(proposal, named), nil
}

// costOf is DT-FM's of a plan, by the links as they are.
func (n network) costOf(proposal *events.Proposal, named map[string]int) float64 {
	groups := make([][]int, n.grid.Stages)
	for _, pipeline := range proposal.Plan.Pipelines {
		for st, stage := range pipeline.Stages {
			groups[st] = append(groups[st], named[stage.Node])
		}
	}
	return n.grid.Layout(groups).CommunicationSeconds()
}

// byThePlanner measures the first plan of the planner on each network, in the worst of several orders of names, with links as a
// file states them, as probes tell of them, and as a live cluster comes to know them by these probes.
func byThePlanner(r *figures.Report, networks []network, placed []dtfm.Placement) error {
	fmt.Printf("\nthe planner's first plan, in the worst of %d orders of names: times the best cost\n", shuffles)
	fmt.Printf("%-24s %10s %10s %10s %10s %8s\n", "network", "best", "stated", "probed", "live", "CPU s")
	for i, n := range networks {
		best, allowed := placed[i].CommunicationSeconds(), ofKnown
		if n.best > 0 {
			best = min(best, n.best)
		}
		if placed[i].Optimal {
			allowed = ofProven
		}
		var worst [3]float64
		before := figures.Spent()
		for seed := range uint64(shuffles) {
			random := rand.New(rand.NewPCG(seed, 3))
			for k, plan := range []func() (float64, error){
				func() (float64, error) { return n.planned(random, stated) },
				func() (float64, error) { return n.planned(random, probedFiveTimes(random)) },
				func() (float64, error) { return n.livePlanned(random) },
			} {
				cost, err := plan()
				if err != nil {
					return fmt.Errorf("%s: %w", n.name, err)
				}
				worst[k] = max(worst[k], cost/best)
			}
		}
		took := (figures.Spent() - before).Seconds() / float64(len(worst)*shuffles)
		fmt.Printf("%-24s %10.4f %10.4f %10.4f %10.4f %8.2f\n", n.name, best, worst[0], worst[1], worst[2], took)
		r.Add(figures.Row{Figure: "first plan of the planner, " + n.name, Unit: "times the best", Ours: worst[0], Target: allowed})
		r.Add(figures.Row{Figure: "the same of probed links, " + n.name, Unit: "times the best", Ours: worst[1], Target: ofKnown})
		r.Add(figures.Row{Figure: "the same of a live cluster, " + n.name, Unit: "times the best", Ours: worst[2], Target: allowed})
	}
	return nil
}

// generated is a network of unequal regions whose links scatter, of 32 to 128 devices in one of several shapes.
func generated(seed uint64) network {
	random := rand.New(rand.NewPCG(seed, 4))
	shape := [][2]int{{4, 8}, {8, 4}, {8, 8}, {16, 4}, {4, 16}, {12, 8}, {16, 8}}[random.IntN(7)]
	t := table{Pipelines: shape[0], Stages: shape[1], Gradient: 5.2, Boundary: 3.77}
	if random.IntN(2) == 0 {
		t.Scatter = seed + 1
	}
	regions, left := 2+random.IntN(7), shape[0]*shape[1]
	for region := range regions {
		devices := left
		if region < regions-1 {
			devices = 1 + random.IntN(max(1, 2*left/(regions-region)-1))
		}
		t.Classes, left = append(t.Classes, devices), left-devices
	}
	for a := range regions {
		t.Delay, t.Bandwidth = append(t.Delay, make([]float64, regions)), append(t.Bandwidth, make([]float64, regions))
		t.Delay[a][a], t.Bandwidth[a][a] = 1+4*random.Float64(), 2+8*random.Float64()
		for b := range a {
			t.Delay[a][b], t.Bandwidth[a][b] = 10+240*random.Float64(), 0.3*math.Pow(5, random.Float64())
			t.Delay[b][a], t.Bandwidth[b][a] = t.Delay[a][b], t.Bandwidth[a][b]
		}
	}
	slices.Sort(t.Classes)
	return network{name: fmt.Sprintf("generated %d, %dx%d, %d regions", seed, shape[0], shape[1], regions), grid: t.grid()}
}
