package machine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/planner/estimate"
	"github.com/reknit/reknit/services/planner/policy"
)

func shape(plan events.Plan) string {
	i := slices.IndexFunc(plan.Considered, func(c events.Candidate) bool { return c.Rejected == "" })
	return plan.Considered[i].Policy + " " + plan.Considered[i].Shape
}

func TestALostNodeOfTwoByThreeLeavesUnequalPipelinesThatUseAllFive(t *testing.T) {
	proposal := proposed(t, afterALoss())
	if got := shape(proposal.Plan); got != "repipeline 2+3" {
		t.Fatalf("proposed %s", got)
	}
	for _, node := range proposal.Plan.Nodes {
		if layers, ok := proposal.Plan.Holds(node.Node); !ok || layers.Count() < 2 {
			t.Errorf("%s trains %v", node.Node, layers)
		}
	}
	if len(proposal.Plan.Nodes) != 5 {
		t.Errorf("%d members", len(proposal.Plan.Nodes))
	}
}

func TestEveryCandidateTravelsWithFiguresAndTheReasonItLost(t *testing.T) {
	plan := proposed(t, afterALoss()).Plan
	reasons := map[string]string{}
	for _, candidate := range plan.Considered {
		reasons[candidate.Policy+" "+candidate.Shape] = candidate.Rejected
		if candidate.StepSeconds <= 0 || candidate.TransitionSeconds < settings.SwitchSeconds || candidate.Score <= 0 {
			t.Errorf("figures missing: %+v", candidate)
		}
	}
	if reasons["reroute 3+3"] != "a layer would have 1 holder(s), where 2 are possible" ||
		reasons["repipeline 2+3"] != "" {
		t.Fatalf("%q", reasons)
	}
}

func TestAReroutedPlanKeepsTheLostNodeInItsPlaceAndMovesNothing(t *testing.T) {
	r := afterALoss()
	for i := range r.Nodes {
		r.Nodes[i].MemoryBytes = 350e3 // two layers
	}
	r.Links = link("n1", "n3", events.Measurement{RoundTripSeconds: 0.001, BandwidthBytesPerSecond: 1e5}, false)
	r.SecondsBetweenFailures = 1 // and a layer takes more to fetch
	proposal := proposed(t, r)
	plan := proposal.Plan
	samples := events.Range{First: 0, End: 12}
	want := []events.Reroute{{From: "n2", To: "n5", Stage: 1, MicroBatches: 6, Samples: samples}}
	if plan.Policy != "reroute" || !reflect.DeepEqual(plan.Reroutes, want) {
		t.Fatalf("%s with %+v", plan.Policy, plan.Reroutes)
	}
	if !reflect.DeepEqual(plan.Pipelines, twoByThree().Pipelines) || len(proposal.Classes) != 0 {
		t.Fatalf("moved: %+v, classes %v", plan.Pipelines, proposal.Classes)
	}
}

// Two pipelines must stay. The lost node's layers are light, but to do without it a heavy one would have to move.
func TestWaitingIsSaidWithTheTimeTheNamesAndWhatElseWasWeighed(t *testing.T) {
	r := request("n2", "n3", "n4", "n5", "n6")
	r.Negotiation, r.Generation, r.Current, r.Job.Pipelines.Min = "g2", 2, twoByThree(), 2
	for i := range r.Job.Layers {
		r.Job.Layers[i].ActivationBytes = 32e3
		if i >= 2 {
			r.Job.Layers[i].OptimizerBytes = 8e9
		}
	}
	for i := range r.Nodes {
		r.Nodes[i].MemoryBytes = 24.8e9
	}
	r.Nodes[2].MemoryBytes = 690e3 // n4 cannot stand in for n1
	r.SecondsUntilReturn, r.SecondsBetweenFailures = 5, 600
	patient := settings
	patient.MinReplicas = 1
	said, err := New(patient).Handle(asked(r))
	if err != nil || said[0].Kind != events.PlanDeferred {
		t.Fatalf("%v: %s", err, said[0].Data)
	}
	deferral, err := events.Open[events.Deferral](said[0])
	if err != nil || deferral.Seconds != 10 || deferral.Considered[0].Policy != policy.Waiting ||
		len(deferral.Considered) < 2 {
		t.Fatalf("%+v, %v", deferral, err)
	}
	if want := "waiting for n1, expected back in 5 s, trains more until the next failure than any plan without"; deferral.Reason != want {
		t.Fatalf("reason %q", deferral.Reason)
	}
}

func TestTooLittleMemoryIsRefusedAndTheReasonNamesTheLimit(t *testing.T) {
	r := request("n1", "n2")
	r.Nodes[0].MemoryBytes, r.Nodes[1].MemoryBytes = 300e3, 300e3
	answer := ask(t, r)
	failure, err := events.Open[events.Failure](answer)
	if err != nil || answer.Kind != events.PlanRefused ||
		!strings.Contains(failure.Reason, "293 KiB of memory a node are too little") {
		t.Fatalf("%s, %q, %v", answer.Kind, failure.Reason, err)
	}
}

func TestARequestWithoutNodesIsRefusedNotACrash(t *testing.T) {
	if answer := ask(t, request()); answer.Kind != events.PlanRefused {
		t.Errorf("%s: %s", answer.Kind, answer.Data)
	}
}

func TestADisconnectedOrLostLinkKeepsItsNodesApart(t *testing.T) {
	r := afterALoss()
	for i := range r.Nodes {
		for j := range i {
			a, b := r.Nodes[i].Node, r.Nodes[j].Node
			r.Links = link(a, b, events.Measurement{RoundTripSeconds: 0.001, BandwidthBytesPerSecond: 1e9}, true)
			lost := i%2 == 0
			r.Links[0].Lost = lost // one direction is enough
			r.Links[0].Disconnected, r.Links[1].Disconnected = !lost, !lost
			if plan := proposed(t, r).Plan; talk(plan, a, b) {
				t.Errorf("%s and %s talk in %v", a, b, plan.Pipelines)
			}
		}
	}
}

// talk reports whether two nodes are neighbours in a pipeline or reduce a layer together.
func talk(plan events.Plan, a, b string) bool {
	for _, pipeline := range plan.Pipelines {
		for st := 1; st < len(pipeline.Stages); st++ {
			if events.PairOf(pipeline.Stages[st-1].Node, pipeline.Stages[st].Node) == events.PairOf(a, b) {
				return true
			}
		}
	}
	one, _ := plan.Holds(a)
	other, _ := plan.Holds(b)
	return one.First < other.End && other.First < one.End && one != (events.Range{}) && other != (events.Range{})
}

func TestTheSlowestNodeAndTheUsualLinkSetTheStep(t *testing.T) {
	r := request("n1", "n2", "n3")
	r.Nodes[1].SpeedFactor = 0.5
	r.Links = slices.Concat(
		link("n1", "n2", events.Measurement{RoundTripSeconds: 0.1, BandwidthBytesPerSecond: 1e3}, false),
		link("n1", "n3", events.Measurement{RoundTripSeconds: 0.5, BandwidthBytesPerSecond: 4e3}, false),
		link("n2", "n3", events.Measurement{RoundTripSeconds: 0.6, BandwidthBytesPerSecond: 1e5}, false),
	)
	s := settings.Situation(r)
	if got := s.Layers[0]; got.ForwardSeconds != 0.02 || got.BackwardSeconds != 0.04 || got.StaticBytes != 160e3 {
		t.Errorf("a layer is %+v", got)
	}
	if n := s.Network; n.BytesPerSecond != 4e3 || n.LatencySeconds != 0.25 || n.TransferSeconds != 0.5 ||
		n.Dear != nil {
		t.Errorf("the network is %+v", n)
	}
	if want := []policy.Link{{From: 1, To: 2, LatencySeconds: 0.3, BytesPerSecond: 1e5, Unsure: true},
		{From: 2, To: 1, LatencySeconds: 0.3, BytesPerSecond: 1e5, Unsure: true}}; !slices.Equal(s.Network.Links[2:], want) {
		t.Errorf("unusual are %+v, want %+v last", s.Network.Links, want)
	}
	if !slices.Equal(s.Speed, []float64{2, 1, 2}) {
		t.Errorf("speeds are %v", s.Speed)
	}
}

func TestANodeStartedAnewHoldsNothing(t *testing.T) {
	r := afterALoss()
	r.Nodes = append(r.Nodes, device("n2"), device("n7")) // n2 is back, before it was found lost
	r.Nodes[5].Incarnation = "b"
	if got := settings.Situation(r).Empty; !slices.Equal(got, []string{"n2", "n7"}) {
		t.Fatalf("empty: %v", got)
	}
}

func TestTheSameRequestGivesTheSameBytes(t *testing.T) {
	one, other := ask(t, afterALoss()), ask(t, afterALoss())
	if one.ID != other.ID || !bytes.Equal(one.Data, other.Data) {
		t.Fatalf("%s\n%s", one.Data, other.Data)
	}
}

func TestARequestThatIsNoneIsAnError(t *testing.T) {
	event := asked(request("n1"))
	event.Data = json.RawMessage(`{"negotiation":"g1"}`)
	if said, err := New(settings).Handle(event); err == nil || len(said) > 0 {
		t.Fatalf("said %v, error %v", said, err)
	}
}

// Each seed is a life: plan after plan, each from the one before, while nodes come and go.
func TestWhateverIsAskedTheProposalIsSound(t *testing.T) {
	live(t, 60, 1, randomRequest, func(events.PlanRequest, events.Plan) error { return nil })
}

// live has each seed ask for plan after plan, and checks that each is sound and whatever else it is to be.
func live(t *testing.T, seeds, stream uint64, first func(*rand.Rand) events.PlanRequest,
	also func(events.PlanRequest, events.Plan) error) {
	t.Helper()
	kinds := map[string]int{}
	for seed := range seeds {
		random := rand.New(rand.NewPCG(seed, stream))
		r := first(random)
		for r.Generation < 6 {
			answer := ask(t, r)
			if answer.Kind == events.PlanRefused {
				kinds["refused"]++
				break
			}
			plan := proposed(t, r).Plan
			kinds[plan.Policy]++
			if err := errors.Join(sound(r, plan), also(r, plan), sameWhenRenamed(t, r, answer)); err != nil {
				t.Fatalf("seed %d, generation %d: %v", seed, r.Generation, err)
			}
			plan.Parent = "p"
			r = next(random, r, plan)
		}
	}
	if kinds["refused"] < 5 || kinds["reroute"] < 10 || kinds["repipeline"] < 10 {
		t.Fatalf("answers: %v", kinds)
	}
}

// sound checks what Validate, which every proposal passes, does not know.
func sound(r events.PlanRequest, plan events.Plan) error {
	if plan.LayerCount() != len(r.Job.Layers) || len(plan.Nodes) != len(r.Nodes) {
		return fmt.Errorf("%d layers of %d, %d nodes of %d", plan.LayerCount(), len(r.Job.Layers), len(plan.Nodes),
			len(r.Nodes))
	}
	for _, node := range r.Nodes {
		peak, least := plan.Predicted.PeakBytes[node.Node], ownBytes(r.Job, plan, node.Node)
		if peak < least || peak > node.MemoryBytes {
			return fmt.Errorf("%s: peak of %d bytes, its layers are %d, its memory %d", node.Node, peak, least,
				node.MemoryBytes)
		}
	}
	taken := 0
	for _, candidate := range plan.Considered {
		if candidate.Rejected == "" {
			taken++
		}
	}
	predicted := plan.Predicted
	if taken != 1 || predicted.StepSeconds < predicted.StepSecondsLowerBound {
		return fmt.Errorf("%d candidates taken, a step of %v s, at least %v", taken, predicted.StepSeconds,
			predicted.StepSecondsLowerBound)
	}
	rate := estimate.ExpectedThroughput(r.Job.GlobalBatch, predicted.StepSeconds, 0, 1)
	if predicted.SamplesPerSecond != rate {
		return fmt.Errorf("%v samples a second, want %v", predicted.SamplesPerSecond, rate)
	}
	return nil
}

// ownBytes is what a node keeps at the peak of its own pipeline: its rows, gradients, and the activations in flight.
func ownBytes(job events.Job, plan events.Plan, node string) (bytes int64) {
	rows := job.UnitBytes()
	for row := range events.Each(plan.UnitsOf(node)) {
		bytes += rows[row]
	}
	for _, pipeline := range plan.Pipelines {
		for st, stage := range pipeline.Stages {
			if stage.Node != node {
				continue
			}
			inFlight := int64(min(pipeline.MicroBatches, len(pipeline.Stages)-st))
			for _, layer := range job.Layers[stage.Layers.First:stage.Layers.End] {
				bytes += layer.GradientBytes + inFlight*layer.ActivationBytes
			}
		}
	}
	return bytes
}

// sameWhenRenamed asks again with other names, whose order is another too.
func sameWhenRenamed(t *testing.T, r events.PlanRequest, answer events.Event) error {
	t.Helper()
	var pairs []string
	for i := range 10 {
		pairs = append(pairs, fmt.Sprintf(`"n%d"`, i), fmt.Sprintf(`"x%d"`, 9-i), fmt.Sprintf(`"j%d"`, i),
			fmt.Sprintf(`"a%d"`, i), fmt.Sprintf(" n%d", i), fmt.Sprintf(" x%d", 9-i), fmt.Sprintf(" j%d", i), fmt.Sprintf(" a%d", i),
			fmt.Sprintf(`"n%d would`, i), fmt.Sprintf(`"x%d would`, 9-i), fmt.Sprintf(`"j%d would`, i), fmt.Sprintf(`"a%d would`, i))
	}
	names := strings.NewReplacer(pairs...)
	var renamed events.PlanRequest
	var want, got any
	if err := events.Decode([]byte(names.Replace(string(asked(r).Data))), &renamed); err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(names.Replace(string(answer.Data))), &want); err != nil {
		return err
	}
	if err := json.Unmarshal(ask(t, renamed).Data, &got); err != nil {
		return err
	}
	if !reflect.DeepEqual(got, want) {
		return fmt.Errorf("renamed, the answer is\n%v, want\n%v", got, want)
	}
	return nil
}

// A trainer that keeps the version before needs room for it, and snapshots in memory need theirs.
func TestAPlanLeavesRoomForTheCopiesThatNodesKeep(t *testing.T) {
	request, static := request("n1", "n2", "n3", "n4", "n5", "n6"), int64(0)
	for _, layer := range request.Job.Layers {
		static += layer.StateBytes()
	}
	for copies := range 4 {
		for i := range request.Nodes {
			request.Nodes[i].StateCopies = copies
		}
		proposal := proposed(t, request)
		for _, pipeline := range proposal.Plan.Pipelines {
			for _, stage := range pipeline.Stages {
				var state int64
				for _, layer := range request.Job.Layers[stage.Layers.First:stage.Layers.End] {
					state += layer.StateBytes()
				}
				if peak := proposal.Plan.Predicted.PeakBytes[stage.Node]; peak < state*int64(1+copies) {
					t.Errorf("%d copies: %s keeps %d bytes of state, and %d in all", copies, stage.Node, state, peak)
				}
			}
		}
	}
	for i := range request.Nodes {
		request.Nodes[i].StateCopies, request.Nodes[i].MemoryBytes = 1, static/int64(len(request.Nodes))
	}
	if _, err := New(Settings{Cluster: "opticks", MinReplicas: 1}).Plan(request); err == nil {
		t.Error("a model that fits once was planned for nodes that keep it twice")
	}
}
