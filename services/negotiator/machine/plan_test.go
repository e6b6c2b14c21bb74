package machine

import (
	"reflect"
	"testing"

	"github.com/reknit/reknit/events"
)

func TestRequestsSayOfThePlanInForceWhoTrainsWhatAndNotHowItCameAbout(t *testing.T) {
	whole := func() *events.Plan {
		return &events.Plan{
			Cluster: "opticks", Generation: 3, Parent: "p", Policy: "reroute", Kind: events.Pipelined, ResumeStep: 7,
			Nodes: []events.Member{{
				Node: "n1", Incarnation: "a", Address: "n1:1", Name: "one", Site: "here", ShardAddress: "n1:2", PreCopies: true,
			}},
			Pipelines: []events.Pipeline{{MicroBatches: 2, Stages: []events.Stage{{Node: "n1", Layers: events.Range{End: 4}}}}},
			Reroutes:  []events.Reroute{{From: "n2", To: "n1", MicroBatches: 1}}, Relays: []events.Pair{{A: "n1", B: "n2"}},
			Sync:       events.Sync{Rounds: []events.Round{{}}},
			Migration:  events.Migration{Moves: []events.Move{{Node: "n1"}}, ShardBytes: 1},
			Data:       events.Data{GlobalBatch: 2, MicroBatch: 1},
			Predicted:  events.Predicted{StepSeconds: 1},
			Considered: []events.Candidate{{Policy: "repipeline"}}, LearningRateScale: 1, Snapshot: "s",
		}
	}
	plan, want := whole(), whole()
	want.Sync, want.Migration, want.Predicted, want.Considered = events.Sync{}, events.Migration{}, events.Predicted{}, nil
	want.Nodes = []events.Member{{Node: "n1", Incarnation: "a", Site: "here"}}
	if told := (&Machine{state: state{training: training{Plan: plan}}}).inForce(); !reflect.DeepEqual(told, want) {
		t.Errorf("%+v is told, want %+v", told, want)
	}
	if !reflect.DeepEqual(plan, whole()) {
		t.Errorf("the plan is %+v now", plan)
	}
}

func TestBothRequestsTellOfThePlanInForceInShort(t *testing.T) {
	w := newWorld(t, 4)
	before := (&Machine{state: state{training: training{Plan: w.plan}}}).inForce()
	w.lose("n2")
	w.run()
	for _, current := range []*events.Plan{
		lastAsked[events.PlanRequest](w, events.PlanRequested).Current,
		lastAsked[events.RestorationRequest](w, events.RestorationAsked).Current,
	} {
		if !reflect.DeepEqual(current.Nodes, before.Nodes) || !reflect.DeepEqual(current.Pipelines, before.Pipelines) {
			t.Errorf("%+v is told, want %+v", current, before)
		}
	}
}
