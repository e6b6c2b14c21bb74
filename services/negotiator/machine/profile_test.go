package machine

import (
	"math"
	"testing"

	"github.com/reknit/reknit/events"
)

// profiles tells that a node took so many times what the job declares for each layer of its stage.
func (w *world) profiles(node string, times float64) {
	plans := w.plans()
	plan := plans[len(plans)-1]
	stage, _ := plan.Holds(node)
	told := events.Profile{Node: node, SpeedFactor: 1 / times, Generation: plan.Generation, FirstLayer: stage.First,
		PeakBytes: 100, OtherBytes: 40}
	for range stage.Count() {
		told.Layers = append(told.Layers, events.LayerCost{ForwardSeconds: times, BackwardSeconds: 2 * times, ActivationBytes: 64})
		told.MicroBatchSeconds += 3 * times
	}
	w.hear(events.NodeProfiled, "/node/"+node, node, &told)
}

// asksAnew has a node join, and returns the request for a plan that follows.
func (w *world) asksAnew(node string) events.PlanRequest {
	w.join(node)
	w.run()
	asked := w.requests()
	return asked[len(asked)-1]
}

func TestTheNextPlanIsAskedForWithWhatNodesMeasured(t *testing.T) {
	w := newWorld(t, 3)
	memory := w.requests()[0].Nodes[0].MemoryBytes
	for _, node := range []string{"n1", "n2", "n3"} {
		w.profiles(node, 3)
		w.hear(events.PlanMeasured, "/node/"+node, node, &events.Pace{Node: node, Generation: 1, StepSeconds: 7, Steps: 10})
	}
	w.hear(events.PlanMeasured, "/node/n1", "n1", &events.Pace{Node: "n1", Generation: 1, StepSeconds: 9000, Steps: 10}) // it lies
	w.restart()                                                                                                          // what was heard is remembered
	asked := w.asksAnew("n4")
	if asked.CurrentStepSeconds != 7 {
		t.Errorf("a step of the plan in force takes %v s: expected the median, 7", asked.CurrentStepSeconds)
	}
	for n, layer := range asked.Job.Layers {
		if layer.ForwardSeconds != 3 || layer.BackwardSeconds != 6 || layer.ActivationBytes != 64 {
			t.Errorf("layer %d is said to take %+v", n, layer)
		}
	}
	for _, node := range asked.Nodes {
		want := memory - 40
		if node.Node == "n4" {
			want = memory
		}
		if node.SpeedFactor != 1 || node.MemoryBytes != want || node.OtherBytes != memory-want {
			t.Errorf("%s has speed %v and %d bytes beside %d others: expected 1 and %d beside %d", node.Node, node.SpeedFactor,
				node.MemoryBytes, node.OtherBytes, want, memory-want)
		}
	}
}

func TestHowLongPassesTookIsToldBesideWhatLayersSay(t *testing.T) {
	for what, test := range map[string]struct {
		passes []float64 // of each node, beside what its layers and micro-batches say
		lost   string
		want   float64
	}{
		"the median counts":                 {[]float64{1.1, 1.4, 1.2}, "", 1.2},
		"one of three that lies does not":   {[]float64{1.1, 1e4, 1.2}, "", 1.2},
		"one that says too little does not": {[]float64{1.1, 1e-4, 1.2}, "", 1.1},
		"one that is lost does not":         {[]float64{1.3, 1.1, 1.2}, "n2", 1.2},
		"of two the lower one":              {[]float64{1e4, 0, 1.2}, "", 1.2},
		"one of three told":                 {[]float64{0, 0, 1.3}, "", 1.3},
		"nobody told":                       {[]float64{0, 0, 0}, "", 0},
	} {
		w := newWorld(t, 3)
		job, plan := w.requests()[0].Job, w.plans()[0]
		for i, node := range []string{"n1", "n2", "n3"} {
			stage, _ := plan.Holds(node)
			seconds := test.passes[i] * float64(plan.Pipelines[0].MicroBatches) * job.MicroBatchSeconds(stage)
			pace := &events.Pace{Node: node, Generation: 1, StepSeconds: 7, Steps: 10, ComputeSeconds: seconds}
			w.hear(events.PlanMeasured, "/node/"+node, node, pace)
		}
		w.restart()
		if test.lost != "" {
			w.lose(test.lost)
			w.run()
		} else {
			w.asksAnew("n4")
		}
		asked := w.requests()
		if got := asked[len(asked)-1].CurrentComputeRatio; math.Abs(got-test.want) > 1e-9 {
			t.Errorf("%s: passes took %v times what layers say, expected %v", what, got, test.want)
		}
	}
}

func TestStepsThatBecameLongerAreToldWithWhatTheyWereAtTheirLeast(t *testing.T) {
	w := newWorld(t, 3)
	for _, seconds := range []float64{7, 18} {
		for _, node := range []string{"n1", "n2", "n3"} {
			pace := &events.Pace{Node: node, Generation: 1, StepSeconds: seconds, Steps: 10, ComputeSeconds: 5}
			w.hear(events.PlanMeasured, "/node/"+node, node, pace)
		}
	}
	w.restart()
	if asked := w.asksAnew("n4"); asked.CurrentStepSeconds != 18 || asked.CurrentLeastSeconds != 7 {
		t.Errorf("a step takes %v s, and took %v at its least: expected 18 and 7", asked.CurrentStepSeconds, asked.CurrentLeastSeconds)
	}
}

func TestALiarsLayersAreTheLeastMedianAndItsSpeedItsOwn(t *testing.T) {
	w := newWorld(t, 3)
	w.profiles("n1", 1)
	w.profiles("n2", 1)
	w.profiles("n3", 1e5)
	asked := w.asksAnew("n4")
	for n, layer := range asked.Job.Layers {
		if stage, _ := w.plans()[0].Holds("n1"); n >= stage.First && n < stage.End && layer.ForwardSeconds != 1 {
			t.Errorf("layer %d takes %v s: expected what most say", n, layer.ForwardSeconds)
		}
	}
	if slow, usual := asked.Nodes[2].SpeedFactor, asked.Nodes[0].SpeedFactor; usual != 1 || slow > 1e-4 {
		t.Errorf("speeds %v and %v: expected the liar to be slow, and nobody else", usual, slow)
	}
}

func TestASpeedThatScattersByLessThanHalfIsTheUsualOne(t *testing.T) {
	w := newWorld(t, 3)
	for i, node := range []string{"n1", "n2", "n3"} {
		w.profiles(node, 1+0.15*float64(i))
	}
	for _, node := range w.asksAnew("n4").Nodes {
		if first := w.requests()[len(w.requests())-1].Nodes[0].SpeedFactor; node.SpeedFactor != first {
			t.Errorf("%s has speed %v, n1 %v: noise moves work", node.Node, node.SpeedFactor, first)
		}
	}
}

func TestWhatWasMeasuredUnderAnotherPlanOrOfOthersLayersDoesNotCount(t *testing.T) {
	w := newWorld(t, 2)
	before := w.requests()[0].Job.Layers
	for _, told := range []events.Profile{
		{Node: "n1", SpeedFactor: 1, Generation: 7, MicroBatchSeconds: 90, Layers: make([]events.LayerCost, len(before))},
		{Node: "n1", SpeedFactor: 1, Generation: 1, MicroBatchSeconds: 90, FirstLayer: 4000, Layers: make([]events.LayerCost, 90)},
	} {
		w.hear(events.NodeProfiled, "/node/n1", "n1", &told)
	}
	w.hear(events.PlanMeasured, "/node/n1", "n1", &events.Pace{Node: "n1", Generation: 7, StepSeconds: 7, Steps: 10})
	asked := w.asksAnew("n3")
	for n, layer := range asked.Job.Layers {
		if layer != before[n] {
			t.Errorf("layer %d: %+v, expected %+v", n, layer, before[n])
		}
	}
	if asked.CurrentStepSeconds != 0 {
		t.Errorf("a step of the plan in force takes %v s: nobody told", asked.CurrentStepSeconds)
	}
}

// figures has a node tell what each of its layers takes.
func (w *world) figures(node string, seconds float64, activations int64) {
	plans := w.plans()
	stage, _ := plans[len(plans)-1].Holds(node)
	told := events.Profile{Node: node, SpeedFactor: 1, Generation: plans[len(plans)-1].Generation, FirstLayer: stage.First,
		MicroBatchSeconds: 2 * seconds * float64(stage.Count())}
	for range stage.Count() {
		told.Layers = append(told.Layers, events.LayerCost{ForwardSeconds: seconds, BackwardSeconds: seconds, ActivationBytes: activations})
	}
	w.hear(events.NodeProfiled, "/node/"+node, node, &told)
}

func TestNobodyIsBelievedToHaveKeptMoreThanItsMemoryHolds(t *testing.T) {
	w := newWorld(t, 3)
	declared := w.requests()[0].Job.Layers[0].ActivationBytes
	w.figures("n1", 1, 1<<47)
	w.lose("n1")
	w.run()
	if kept := w.asksAnew("n4").Job.Layers[0].ActivationBytes; kept != declared {
		t.Errorf("layer 0 keeps %d bytes, as a node said that is gone and had no room for it: expected %d", kept, declared)
	}
}

func TestASpeedWithoutSecondsIsBesideWhatTheJobDeclares(t *testing.T) {
	w := newWorld(t, 3)
	w.profiles("n1", 1)
	w.profiles("n2", 1)
	w.hear(events.NodeProfiled, "/node/n3", "n3", &events.Profile{Node: "n3", SpeedFactor: 0.1, Generation: 1})
	if nodes := w.asksAnew("n4").Nodes; nodes[0].SpeedFactor != 1 || math.Abs(nodes[2].SpeedFactor-0.1) > 1e-9 || nodes[3].SpeedFactor != 1 {
		t.Errorf("%+v: expected n3 to be a tenth as fast as the others, as it told", nodes)
	}
}

func TestStepsThatABuildBeforeRememberedAreMeasuredStill(t *testing.T) {
	m := New(Settings{})
	if err := m.Restore([]byte(`{"steps": {"n1": 2, "n2": 3, "n3": 7}}`)); err != nil {
		t.Fatal(err)
	}
	if last, least := m.state.Measured.StepSeconds(); last != 3 || least != 3 || len(m.state.Measured.Passes()) > 0 {
		t.Errorf("steps take %v s, and %v s at least: expected 3 s, and passes that nobody told", last, least)
	}
}

func TestWhatANodeKeepsBesideTheStateIsKnownThoughALaterProfileDoesNotTellOfMemory(t *testing.T) {
	w := newWorld(t, 3)
	w.profiles("n1", 1)
	w.hear(events.NodeProfiled, "/node/n1", "n1", &events.Profile{Node: "n1", SpeedFactor: 0.5, Generation: 1, MicroBatchSeconds: 6})
	if kept := w.asksAnew("n4").Nodes[0].OtherBytes; kept != 40 {
		t.Errorf("n1 is said to keep %d bytes of other things, and it measured 40", kept)
	}
}
