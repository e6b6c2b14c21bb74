package machine

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

var settings = Settings{Cluster: "c", MinReplicas: 2, SwitchSeconds: 0.05}

// request asks for a plan of a job of six equal layers for nodes that can hold five of them.
func request(nodes ...string) events.PlanRequest {
	r := events.PlanRequest{
		Negotiation: "g1", Cluster: "c", Generation: 1, SecondsBetweenFailures: 3600,
		Job: events.Job{Digest: events.Digest([]byte("job")), GlobalBatch: 24, MicroBatch: 2},
	}
	for range 6 {
		r.Job.Layers = append(r.Job.Layers, events.LayerProfile{
			ParameterBytes: 40e3, OptimizerBytes: 80e3, GradientBytes: 40e3, ActivationBytes: 1e3, OutputBytes: 1e3,
			ForwardSeconds: 0.01, BackwardSeconds: 0.02,
		})
	}
	for _, node := range nodes {
		r.Nodes = append(r.Nodes, device(node))
	}
	return r
}

func device(node string) events.Device {
	return events.Device{
		Member: events.Member{Node: node, Incarnation: "a", Address: node + ".example:7400"}, MemoryBytes: 850e3,
		SpeedFactor: 1,
	}
}

// twoByThree is the plan of six nodes, n1 to n3 and n4 to n6.
func twoByThree() *events.Plan {
	plan := &events.Plan{
		Cluster: "c", Generation: 1, Policy: "repipeline", LearningRateScale: 1,
		Data: events.Data{GlobalBatch: 24, MicroBatch: 2},
	}
	for p := range 2 {
		pipeline := events.Pipeline{MicroBatches: 6}
		for st := range 3 {
			node := device(fmt.Sprintf("n%d", 3*p+st+1))
			plan.Nodes = append(plan.Nodes, node.Member)
			pipeline.Stages = append(pipeline.Stages,
				events.Stage{Node: node.Node, Layers: events.Range{First: 2 * st, End: 2*st + 2}})
		}
		plan.Pipelines = append(plan.Pipelines, pipeline)
	}
	plan.Deal()
	return plan
}

// afterALoss is the request once n2 of twoByThree is lost.
func afterALoss() events.PlanRequest {
	r := request("n1", "n3", "n4", "n5", "n6")
	r.Negotiation, r.Generation, r.Current = "g2", 2, twoByThree()
	r.Changes = []events.Change{{Kind: events.ChangeFailure, Node: "n2", Cause: "e1"}}
	return r
}

// ask says a request to a new machine and returns its one answer.
func ask(t *testing.T, r events.PlanRequest) events.Event {
	t.Helper()
	said, err := New(settings).Handle(asked(r))
	if err != nil {
		t.Fatal(err)
	}
	if len(said) != 1 || said[0].Subject != r.Negotiation || said[0].Cause != asked(r).ID {
		t.Fatalf("expected one answer about %s, got %+v", r.Negotiation, said)
	}
	return said[0]
}

func asked(r events.PlanRequest) events.Event {
	negotiator := events.Speaker{Source: "/negotiator", Cluster: "c"}
	return negotiator.First(time.Unix(1, 0), "test", events.PlanRequested, r.Negotiation, &r)
}

// proposed is the valid proposal that answers a request.
func proposed(t *testing.T, r events.PlanRequest) events.Proposal {
	t.Helper()
	answer := ask(t, r)
	if answer.Kind != events.PlanProposed {
		t.Fatalf("%s: %s", answer.Kind, answer.Data)
	}
	proposal, err := events.Open[events.Proposal](answer)
	if err != nil {
		t.Fatal(err)
	}
	return proposal
}

// link is measured both ways, or cut.
func link(from, to string, measured events.Measurement, cut bool) []events.Link {
	measured.From, measured.To = from, to
	there := events.Link{Measurement: measured, Disconnected: cut}
	measured.From, measured.To = to, from
	return []events.Link{there, {Measurement: measured, Disconnected: cut}}
}

// randomRequest asks for a plan for random nodes, links and layers.
func randomRequest(random *rand.Rand) events.PlanRequest {
	r := request()
	for i := range 1 + random.IntN(9) {
		node := device(fmt.Sprintf("n%d", i))
		node.MemoryBytes, node.SpeedFactor = 300e3+random.Int64N(600e3), 0.5+random.Float64()
		for _, other := range r.Nodes {
			measured := events.Measurement{
				RoundTripSeconds: random.Float64() / 100, BandwidthBytesPerSecond: 1e6 * random.Float64(),
			}
			if random.IntN(2) == 0 {
				r.Links = append(r.Links, link(node.Node, other.Node, measured, random.IntN(6) == 0)...)
			}
		}
		r.Nodes = append(r.Nodes, node)
	}
	r.Job.Layers = r.Job.Layers[:1+random.IntN(6)]
	for i := range r.Job.Layers {
		layer := &r.Job.Layers[i]
		layer.ForwardSeconds, layer.BackwardSeconds = random.Float64(), random.Float64()
		layer.ParameterBytes, layer.ActivationBytes = random.Int64N(100e3), random.Int64N(20e3)
	}
	r.Job.GlobalBatch = r.Job.MicroBatch * (1 + random.IntN(12))
	return r
}

// next is the request after a plan came into force and some nodes were lost, joined or started anew.
func next(random *rand.Rand, r events.PlanRequest, plan events.Plan) events.PlanRequest {
	r.Generation, r.Negotiation, r.Current = r.Generation+1, fmt.Sprintf("g%d", r.Generation+1), &plan
	var nodes []events.Device
	for _, node := range r.Nodes {
		switch random.IntN(6) {
		case 0:
			continue
		case 1:
			node.Incarnation = strings.Repeat("b", int(r.Generation))
		}
		nodes = append(nodes, node)
	}
	if len(nodes) == 0 || random.IntN(3) == 0 {
		nodes = append(nodes, device(fmt.Sprintf("j%d", r.Generation)))
	}
	r.Nodes = nodes
	return r
}
