package machine

import (
	"slices"
	"testing"

	"github.com/reknit/reknit/events"
)

// replicas is a data-parallel job that reduces 96 MB a step, with slow links between some of its nodes.
func replicas(names []string, slow ...string) events.PlanRequest {
	r := request(names...)
	r.Job.Kind = events.DataParallel
	r.Job.GlobalBatch = 24 * len(names)
	for i := range r.Job.Layers {
		r.Job.Layers[i].GradientBytes = 16e6
	}
	for i := range r.Nodes {
		r.Nodes[i].MemoryBytes = 1e12
	}
	r.Usual = &events.Usual{RoundTripSeconds: 0.001, BandwidthBytesPerSecond: 1.25e9}
	for _, pair := range slow {
		r.Links = append(r.Links, link("n"+pair[:1], "n"+pair[2:], events.Measurement{RoundTripSeconds: 0.028, BandwidthBytesPerSecond: 50e6 / 8, Uncertainty: 0.1}, false)...)
	}
	return r
}

var fourNodes = []string{"n1", "n2", "n3", "n4"}

func TestAPlanSaysInWhichOrderReplicasReduceAndKeepsASlowPairApart(t *testing.T) {
	for _, test := range []struct {
		slow []string
		ring []string
	}{
		{nil, fourNodes},
		{[]string{"1-3"}, fourNodes},
		{[]string{"1-4"}, []string{"n1", "n2", "n4", "n3"}},
		{[]string{"1-2", "3-4"}, []string{"n1", "n3", "n2", "n4"}},
	} {
		plan := proposed(t, replicas(fourNodes, test.slow...)).Plan
		if got := plan.Sync.Rounds[0].Groups[0].Nodes; len(plan.Sync.Rounds) != 1 || !slices.Equal(got, test.ring) {
			t.Errorf("with %v slow they reduce as %v, expected %v", test.slow, got, test.ring)
		}
	}
}

func TestEachGroupOfAPipelinedPlanHasItsRing(t *testing.T) {
	plan := proposed(t, afterALoss()).Plan
	last := 0
	for _, round := range plan.Sync.Rounds {
		for _, group := range round.Groups {
			if group.Layers.First != last || len(group.Nodes) != 2 {
				t.Errorf("layers %v are reduced by %v, expected those from %d on, by two", group.Layers, group.Nodes, last)
			}
			last = group.Layers.End
			for _, node := range group.Nodes {
				if held, _ := plan.Holds(node); held.First > group.Layers.First || held.End < group.Layers.End {
					t.Errorf("%s reduces layers %v, and holds %v", node, group.Layers, held)
				}
			}
		}
	}
	if last != 6 {
		t.Errorf("layers up to %d are reduced", last)
	}
}

func TestANodeThatWaitsForItsLinksIsNamedWithWhatItNeeds(t *testing.T) {
	slow := []string{"1-4", "2-4", "3-4"}
	plan := proposed(t, replicas(fourNodes, slow...)).Plan
	if len(plan.Idle) != 1 || plan.Idle[0].Node != "n4" || len(plan.Pipelines) != 3 || plan.Idle[0].NeedsBytesPerSecond < 50e6/8 {
		t.Fatalf("%+v in a plan of %s", plan.Idle, plan.Shape())
	}
	if with := plan.Idle[0].StepSeconds; with < 2*plan.Predicted.StepSeconds {
		t.Errorf("a step of %v s with it, and %v s without", with, plan.Predicted.StepSeconds)
	}
	if len(plan.Considered) != 2 || plan.Considered[1].Shape != "1+1+1+1" || plan.Considered[1].Rejected == "" {
		t.Errorf("considered were %+v", plan.Considered)
	}
	once := replicas(fourNodes, slow...)
	for i := range once.Links {
		once.Links[i].Uncertainty = 0
	}
	if plan := proposed(t, once).Plan; len(plan.Pipelines) != 4 {
		t.Errorf("a node waits for links that were probed once: %s", plan.Shape())
	}
	own := replicas(fourNodes, slow...)
	own.Job.Data = events.LocalData
	if plan := proposed(t, own).Plan; len(plan.Pipelines) != 4 {
		t.Errorf("a node with data of its own waits: %s", plan.Shape())
	}
	guessed := replicas(fourNodes, slow...)
	for i := range guessed.Job.Layers {
		guessed.Job.Layers[i].ForwardSeconds, guessed.Job.Layers[i].BackwardSeconds = 0, 0
	}
	if plan := proposed(t, guessed).Plan; len(plan.Pipelines) != 4 {
		t.Errorf("a node waits, and nothing tells how long a step takes: %s", plan.Shape())
	}
}
