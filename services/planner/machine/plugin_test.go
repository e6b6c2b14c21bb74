package machine

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/planner/policy"
)

// replied is a plug-in's answer to a request: a plan of ours for other settings, spoiled or not.
func replied(t *testing.T, random *rand.Rand, r events.PlanRequest) Reply {
	t.Helper()
	theirs := Settings{Cluster: "c", Policy: named(t, []string{"repipeline", "reroute"}[random.IntN(2)]),
		MinReplicas: 1 + random.IntN(3)}
	proposal, err := New(theirs).Plan(r)
	if err != nil {
		return Reply{Plugin: "theirs", Problem: "no answer within 1s"}
	}
	plan := &proposal.Plan
	plan.Predicted.StepSeconds = random.Float64() / 1e6
	first := &plan.Pipelines[0]
	switch random.IntN(8) {
	case 0:
		first.MicroBatches += random.IntN(3) - 1
	case 1:
		first.Stages[0].Node = r.Nodes[random.IntN(len(r.Nodes))].Node
	case 2:
		first.Stages[len(first.Stages)-1].Layers.End += random.IntN(3) - 1
	case 3:
		first.MicroBatches = math.MinInt
	case 4:
		plan.Pipelines = slices.Concat(plan.Pipelines, plan.Pipelines)
	}
	data, err := json.Marshal(proposal)
	if err != nil {
		t.Fatal(err)
	}
	return Reply{Plugin: "theirs", Data: data}
}

func named(t *testing.T, name string) policy.Policy {
	t.Helper()
	found, err := policy.Named(name)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// hesitant plans anew and takes half a minute longer to get there, so that others can be better.
func hesitant(t *testing.T) policy.Policy {
	anew := named(t, "repipeline")
	return policy.Policy{Name: "hesitant", Propose: func(s policy.Situation) ([]policy.Candidate, error) {
		candidates, err := anew.Propose(s)
		for i := range candidates {
			candidates[i].CopySeconds += 30
		}
		return candidates, err
	}}
}

func TestWhateverAPluginSaysTheProposalIsSoundAndNoWorse(t *testing.T) {
	used, refused := 0, 0
	ours := settings
	ours.Policy = hesitant(t)
	for seed := range uint64(80) {
		random := rand.New(rand.NewPCG(seed, 3))
		r := randomRequest(random)
		for r.Generation < 5 {
			reply := replied(t, random, r)
			alone, err := New(ours).Plan(r)
			if err != nil {
				break
			}
			proposal, err := New(ours).Plan(r, reply)
			if err != nil {
				t.Fatalf("seed %d, generation %d: %v", seed, r.Generation, err)
			}
			plan := proposal.Plan
			if err := sound(r, plan); err != nil || proposal.Validate() != nil {
				t.Fatalf("seed %d, generation %d: %v, %v", seed, r.Generation, err, proposal.Validate())
			}
			at := slices.IndexFunc(plan.Considered, func(c events.Candidate) bool { return c.Policy == "theirs" })
			switch {
			case at == 0:
				used++
			case plan.Considered[at].StepSeconds == 0:
				refused++
			}
			if at > 0 &&
				(!reflect.DeepEqual(plan.Pipelines, alone.Plan.Pipelines) || plan.Considered[at].Rejected == "") {
				t.Fatalf("seed %d, generation %d: %+v, without the plug-in %+v", seed, r.Generation, plan, alone.Plan)
			}
			asSafe := min(len(plan.Pipelines), ours.MinReplicas) == min(len(alone.Plan.Pipelines), ours.MinReplicas)
			if at == 0 && asSafe && plan.Considered[0].Score < 0.95*alone.Plan.Considered[0].Score {
				t.Fatalf("seed %d, generation %d: took %+v of theirs, ours was %+v", seed, r.Generation,
					plan.Considered[0], alone.Plan.Considered[0])
			}
			plan = alone.Plan
			plan.Parent = "p"
			r = next(random, r, plan)
		}
	}
	if used < 5 || refused < 20 {
		t.Fatalf("%d used, %d refused", used, refused)
	}
}

func TestWhereRepipelineAnswersForAPolicyItsReasonIsToldWithTheNamesOfNodes(t *testing.T) {
	silent := policy.Policy{Name: "mine", Propose: func(s policy.Situation) ([]policy.Candidate, error) {
		return nil, fmt.Errorf("%s has no twin", s.Nodes[0])
	}}
	r := request("gpu-7", "gpu-8")
	proposal, err := New(Settings{Cluster: "c", Policy: silent, MinReplicas: 1}).Plan(r)
	if err != nil {
		t.Fatal(err)
	}
	considered := proposal.Plan.Considered
	last := considered[len(considered)-1]
	if proposal.Plan.Policy != "repipeline" || last.Policy != "mine" || last.Rejected != "gpu-7 has no twin" {
		t.Errorf("by %s, for %+v", proposal.Plan.Policy, last)
	}
}
