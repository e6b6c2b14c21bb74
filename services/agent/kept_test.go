package agent

import (
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

func TestAPartOfASnapshotCountsAsThePlanHadIt(t *testing.T) {
	stage := func(node string, first, end int) events.Stage {
		return events.Stage{Node: node, Layers: events.Range{First: first, End: end}}
	}
	plan := &events.Plan{Generation: 7, ResumeStep: 100,
		Pipelines: []events.Pipeline{{MicroBatches: 1, Stages: []events.Stage{stage("n1", 0, 2), stage("n2", 2, 3)}}}}
	for name, row := range map[string]struct {
		last, step uint64
		node       string
		units      []int
		counts     bool
	}{
		"its units":                       {0, 120, "n1", []int{0, 1}, true},
		"another's":                       {0, 120, "n1", []int{0, 2}, false},
		"of nobody in the plan":           {0, 120, "n3", []int{0}, false},
		"of before the plan":              {0, 99, "n1", []int{0}, false},
		"where the next plan took over":   {150, 150, "n2", []int{2}, true},
		"beyond":                          {150, 151, "n2", []int{2}, false},
		"under the plan that is in force": {0, 1 << 40, "n2", []int{2}, true},
	} {
		if err := (reign{plan, row.last}).check(row.node, row.step, row.units); (err == nil) != row.counts {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A plan that was looked up while it was in force was held to have no end: step 2^40 counted under it for as long as the agent ran.
func TestAPlanEndsForWhoLookedItUpBefore(t *testing.T) {
	h := newHub(t)
	s := &Session{config: Config{Cluster: "c"}, bus: h.bus, reigns: map[string]reign{}}
	plan := events.Plan{Cluster: "c", Generation: 1, ResumeStep: 100, Data: events.Data{GlobalBatch: 1, MicroBatch: 1},
		Nodes: []events.Member{{Node: "n1", Incarnation: "1", Address: "127.0.0.1:1", ShardAddress: "127.0.0.1:1"}},
		Pipelines: []events.Pipeline{{MicroBatches: 1,
			Stages: []events.Stage{{Node: "n1", Layers: events.Range{First: 0, End: 1}}}}}}
	event := h.speaker.First(time.Now(), "1", events.PlanCommitted, "1", &plan)
	digest := event.Digest()
	check := func(step uint64) error {
		known, err := s.checkHeld(t.Context(), "n1", digest, step, []int{0})
		if !known {
			t.Fatalf("the log does not have the plan: %v", err)
		}
		return err
	}
	if _, err := h.bus.Publish(t.Context(), event); err != nil {
		t.Fatal(err)
	}
	if err := check(120); err != nil {
		t.Fatal(err)
	}
	next := plan
	next.Generation, next.Parent, next.ResumeStep = 2, digest, 150
	h.say(events.PlanCommitted, "2", &next)
	for range 2 { // as the log tells, and as is known then
		if err := check(150); err != nil {
			t.Errorf("the last step under a plan: %v", err)
		}
		if err := check(1 << 40); err == nil {
			t.Error("a step beyond the plan counts")
		}
	}
}
