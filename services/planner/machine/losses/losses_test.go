package losses

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/planner/machine"
	"github.com/reknit/reknit/services/planner/policy"
)

// standing is a world in which the plan for so many nodes, no two of them alike, stands.
func standing(t *testing.T, nodes int) (*World, machine.Settings) {
	t.Helper()
	r := events.PlanRequest{
		Negotiation: "g1", Cluster: "c", Generation: 1, SecondsBetweenFailures: 3600,
		Job: events.Job{Digest: events.Digest([]byte("job")), GlobalBatch: nodes, MicroBatch: 1},
	}
	for range 4 {
		r.Job.Layers = append(r.Job.Layers, events.LayerProfile{
			ParameterBytes: 1e6, OptimizerBytes: 2e6, GradientBytes: 1e6, ActivationBytes: 1e4, OutputBytes: 1e4,
			ForwardSeconds: 0.01, BackwardSeconds: 0.02,
		})
	}
	for i := range nodes {
		node := fmt.Sprintf("n%04d", i)
		member := events.Member{Node: node, Incarnation: "a", Address: node + ":1"}
		r.Nodes = append(r.Nodes, events.Device{Member: member, MemoryBytes: int64(1e9 + i), SpeedFactor: 1})
	}
	settings := machine.Settings{Cluster: "c", Policy: policy.Adaptive, MinReplicas: 2, SwitchSeconds: 0.05}
	proposal, err := machine.New(settings).Plan(r)
	if err != nil {
		t.Fatal(err)
	}
	var w World
	negotiator := events.Speaker{Source: "/negotiator", Cluster: "c"}
	w.Hear(negotiator.First(time.Unix(1, 0), "test", events.PlanRequested, r.Negotiation, &r))
	w.Hear(negotiator.First(time.Unix(1, 0), "test", events.PlanCommitted, "1", &proposal.Plan))
	if w.Standing() == nil {
		t.Fatal("no plan stands")
	}
	return &w, settings
}

// With as many classes as nodes there are more pairs than are planned for: those with most like them are.
func TestOfPairsTheLikeliestArePlannedFor(t *testing.T) {
	w := World{plan: &events.Plan{}}
	for p := range 10 {
		pipeline := events.Pipeline{Stages: []events.Stage{
			{Node: fmt.Sprintf("a%d", p)}, {Node: fmt.Sprintf("b%d", p)},
		}}
		w.plan.Pipelines = append(w.plan.Pipelines, pipeline)
	}
	classes := [][]string{{"spare"}, nil, nil}
	for _, pipeline := range w.plan.Pipelines {
		for st, stage := range pipeline.Stages {
			classes[st+1] = append(classes[st+1], stage.Node)
		}
	}
	var got []string
	for _, pair := range w.pairs(classes) {
		got = append(got, fmt.Sprintf("%s+%s", pair.nodes[0], pair.nodes[1]))
	}
	if want := "a0+b1 a0+a1 b0+b1 spare+a0 spare+b0 a0+b0"; strings.Join(got, " ") != want {
		t.Fatalf("got %v, want %s", got, want)
	}
}

func TestAnswersAreBounded(t *testing.T) {
	w, settings := standing(t, 64)
	var questions []policy.Canonical
	for questions = range w.Questions(settings) {
		if len(questions) > mostPlaces/(8*64) {
			break
		}
	}
	if len(questions) > mostPlaces/(8*64) || len(questions) < 64 {
		t.Fatalf("%d questions", len(questions))
	}
}

func TestWhoHasHeardEnoughIsAskedNoMore(t *testing.T) {
	w, settings := standing(t, 8)
	rounds := 0
	for range w.Questions(settings) {
		if rounds++; rounds == 3 {
			break
		}
	}
	if rounds != 3 {
		t.Fatalf("asked about %d losses, want 3", rounds)
	}
}

func TestWhoAsksNoMorePaysForNoMore(t *testing.T) {
	w, settings := standing(t, 64)
	allocations := func(wanted int) float64 {
		return testing.AllocsPerRun(5, func() {
			rounds := 0
			for range w.Questions(settings) {
				if rounds++; rounds == wanted {
					break
				}
			}
		})
	}
	if one, two := allocations(1), allocations(2); two < 1.9*one {
		t.Errorf("one question takes %v allocations, two %v", one, two)
	}
}

func TestARequestThatComesBehindTheEndOfItsNegotiationLeavesThePlanStanding(t *testing.T) {
	w, _ := standing(t, 4)
	negotiator := events.Speaker{Source: "/negotiator", Cluster: "c"}
	asked := *w.request
	asked.Negotiation, asked.Generation = "g2", 2
	w.Hear(negotiator.First(time.Unix(2, 0), "test", events.Aborted, "g2", &events.Abort{Negotiation: "g2", Generation: 2}))
	w.Hear(negotiator.First(time.Unix(2, 0), "test", events.PlanRequested, "g2", &asked))
	if w.Standing() == nil {
		t.Error("what is over is negotiated")
	}
}
