package machine

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
)

func TestADataParallelJobNeedsNoSeconds(t *testing.T) {
	r := request("n1", "n2", "n3")
	r.Job.Kind = events.DataParallel
	for i := range r.Job.Layers {
		r.Job.Layers[i].ForwardSeconds, r.Job.Layers[i].BackwardSeconds = 0, 0
	}
	for i, speed := range []float64{2, 4, 6} { // micro-batches a second, as the nodes measured
		r.Nodes[i].SpeedFactor, r.Nodes[i].MemoryBytes = speed, 1e9
	}
	plan := proposed(t, r).Plan
	if plan.Predicted.Unmeasured {
		t.Error("measured speeds are not known to be")
	}
	if got := plan.Predicted.StepSeconds; plan.Kind != events.DataParallel || got < 1 || got > 1.2 {
		t.Errorf("a %s plan with a step of %v s: expected 12 micro-batches at 12 a second", plan.Kind, got)
	}
	for _, pipeline := range plan.Pipelines {
		want := map[string]int{"n1": 4, "n2": 8, "n3": 12}[pipeline.Stages[0].Node]
		if got := pipeline.Samples.Count(); got != want {
			t.Errorf("%s trains %d samples of a step, expected %d", pipeline.Stages[0].Node, got, want)
		}
	}
}

func TestAPlanSaysWhereItsSecondsOnlyComparePlans(t *testing.T) {
	r := request("n1", "n2", "n3")
	if proposed(t, r).Plan.Predicted.Unmeasured {
		t.Error("the seconds that a job says are not known")
	}
	r.Job.Kind = events.DataParallel
	for i := range r.Job.Layers {
		r.Job.Layers[i].ForwardSeconds, r.Job.Layers[i].BackwardSeconds = 0, 0
	}
	for i := range r.Nodes {
		r.Nodes[i].MemoryBytes = 1e9
	}
	if !proposed(t, r).Plan.Predicted.Unmeasured {
		t.Error("seconds that nobody measured are said to be known")
	}
}

func TestLayersThatAreTiedStayInOneStage(t *testing.T) {
	r := request("n1", "n2", "n3")
	r.Job.Stages.Min = 3
	r.Job.Tied = []events.Range{{First: 1, End: 4}}
	plan := proposed(t, r).Plan
	ends := []int{}
	for _, stage := range plan.Pipelines[0].Stages {
		ends = append(ends, stage.Layers.End)
	}
	if want := []int{1, 4, 6}; !slices.Equal(ends, want) {
		t.Errorf("stages end at layers %v: expected %v", ends, want)
	}
	next := r
	next.Generation, next.Negotiation, next.Current = 2, "g2", &plan
	if again := proposed(t, next).Plan; again.Predicted.TransitionSeconds > settings.SwitchSeconds {
		t.Errorf("what is planned again moves layers for %v s", again.Predicted.TransitionSeconds)
	}
	r.Job.Tied[0] = events.Range{First: 0, End: 6}
	if said := ask(t, r); said.Kind != events.PlanRefused {
		t.Errorf("three stages of one run of layers: %s", said.Data)
	}
}

func TestAPluginThatPartsTiedLayersIsRefused(t *testing.T) {
	r := request("n1", "n2")
	r.Job.Tied = []events.Range{{First: 2, End: 4}}
	reply := `{"negotiation": "g1", "plan": {"pipelines": [{"microBatches": 12, "stages": [` +
		`{"node": "n1", "layers": {"first": 0, "end": 3}}, {"node": "n2", "layers": {"first": 3, "end": 6}}]}]}}`
	plan, err := New(settings).Plan(r, Reply{Plugin: "mine", Data: []byte(reply)})
	if err != nil {
		t.Fatal(err)
	}
	const want = "stages[0]: layers 0 to 3: expected the layers that are tied"
	last := plan.Plan.Considered[len(plan.Plan.Considered)-1]
	if last.Policy != "mine" || !strings.Contains(last.Rejected, want) {
		t.Errorf("%s: %s", last.Policy, last.Rejected)
	}
}

func TestABatchThatFollowsTheNodesTellsItsScale(t *testing.T) {
	r := request("n1", "n2", "n3")
	for i := range r.Nodes {
		r.Nodes[i].MemoryBytes = 1e9
	}
	r.Job.Kind, r.Job.BatchRule = events.DataParallel, &events.BatchRule{SamplesPerNode: 16, LearningRate: "linear"}
	for nodes, want := range map[int]float64{3: 2, 2: 32.0 / 24} {
		asked := r
		asked.Nodes = r.Nodes[:nodes]
		plan := proposed(t, asked).Plan
		if plan.Data.GlobalBatch != 16*nodes || plan.LearningRateScale != want {
			t.Errorf("%d nodes train %d samples a step at a scale of %v", nodes, plan.Data.GlobalBatch,
				plan.LearningRateScale)
		}
	}
}

func TestSamplesWeighOnlyWhereDataStaysWithItsNodes(t *testing.T) {
	r := request("n1", "n2", "n3")
	for i := range r.Nodes {
		r.Nodes[i].MemoryBytes = 1e9
	}
	r.Nodes[0].Samples = 40_000 // which one node told, though all train the same data
	for _, pipeline := range proposed(t, r).Plan.Pipelines {
		if pipeline.Weight != 0 {
			t.Errorf("%+v: expected no weight", pipeline)
		}
	}
	r.Job.Kind, r.Job.Data = events.DataParallel, events.LocalData
	r.Nodes[0].Samples, r.Nodes[1].Samples, r.Nodes[2].Samples = 1<<53-1, 1<<53-1, 1<<53-1
	for _, pipeline := range proposed(t, r).Plan.Pipelines {
		if math.Abs(pipeline.Weight-1.0/3) > 1e-9 {
			t.Errorf("%+v: expected a third", pipeline)
		}
	}
}

// Either of two nodes may have the most there are, but not both.
func TestABatchThatGrewBeyondTheMostMicroBatchesIsRefusedByName(t *testing.T) {
	r := request("n1", "n2")
	r.Nodes[0].MemoryBytes, r.Nodes[1].MemoryBytes = 1e9, 1e9
	r.Job.Kind = events.DataParallel
	r.Job.BatchRule = &events.BatchRule{SamplesPerNode: r.Job.MicroBatch * events.MostMicroBatches, LearningRate: "linear"}
	answer := ask(t, r)
	refused, err := events.Open[events.Failure](answer)
	const says = "batchRule.samplesPerNode: expected at most 65536"
	if err != nil || answer.Kind != events.PlanRefused || !strings.Contains(refused.Reason, says) {
		t.Errorf("%s: %+v, error %v; expected that it names batchRule.samplesPerNode", answer.Kind, refused, err)
	}
	r.Nodes = r.Nodes[:1]
	if answer := ask(t, r); answer.Kind != events.PlanProposed {
		t.Errorf("%s for one node, expected a plan", answer.Kind)
	}
}
