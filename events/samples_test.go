package events

import (
	"slices"
	"strings"
	"testing"
)

// rerouted is a sound plan in which n1, n2 and n7 stand in for the second pipeline's lost first stage. n2 holds a part of it.
func rerouted() *Plan {
	plan := sound()
	plan.Nodes = append(plan.Nodes, Member{Node: "n7", Incarnation: "a", Address: "127.0.0.1:1"})
	plan.Pipelines[0].MicroBatches = 9
	plan.Pipelines[1].Stages = []Stage{{"n4", Range{0, 3}}, {"n5", Range{3, 4}}, {"n6", Range{4, 6}}}
	plan.Pipelines = append(plan.Pipelines, Pipeline{MicroBatches: 1, Stages: []Stage{{"n7", Range{0, 6}}}})
	plan.Sync.Rounds, plan.Migration.Transfers = nil, nil
	plan.Reroutes = []Reroute{
		{From: "n4", To: "n1", MicroBatches: 4}, {From: "n4", To: "n2", MicroBatches: 5},
		{From: "n4", To: "n7", MicroBatches: 2, Layers: Range{0, 2}}, {From: "n4", To: "n7", MicroBatches: 1, Layers: Range{2, 3}},
	}
	return plan
}

func TestSamplesAreDealtInThePlansOrder(t *testing.T) {
	plan := rerouted()
	dealt := plan.Dealt()
	if got := dealt.Pipelines[1].Samples; dealt.Pipelines[0].Samples != (Range{0, 36}) || got != (Range{36, 60}) {
		t.Errorf("pipelines train %v and %v: expected 9 and 6 micro-batches of 4 samples",
			dealt.Pipelines[0].Samples, got)
	}
	var got []Range
	for _, reroute := range dealt.Reroutes {
		got = append(got, reroute.Samples)
	}
	if want := []Range{{36, 52}, {36, 56}, {52, 60}, {56, 60}}; !slices.Equal(got, want) {
		t.Errorf("who stands in trains %v: expected %v, the lost node's samples at each layer", got, want)
	}
	trains := map[string][]Range{"n1": {{0, 36}, {36, 52}}, "n2": {{0, 36}, {36, 56}}, "n3": {{0, 36}}, "n4": nil, "n6": {{36, 60}},
		"n7": {{60, 64}, {52, 60}}}
	for node, want := range trains {
		if got := plan.SamplesOf(node); !slices.Equal(got, want) {
			t.Errorf("%s trains %v: expected %v", node, got, want)
		}
	}
	for layer, want := range [][]Range{{{60, 64}, {52, 60}}, {{60, 64}, {52, 60}}, {{60, 64}, {56, 60}}, {{60, 64}}} {
		if got := plan.SamplesAtLayer("n7", layer); !slices.Equal(got, want) {
			t.Errorf("n7 trains %v at layer %d: expected %v", got, layer, want)
		}
	}
	if plan.Pipelines[0].Samples != (Range{}) || plan.Reroutes[0].Samples != (Range{}) {
		t.Error("the plan itself was changed")
	}
	if err := dealt.Validate(); err != nil {
		t.Error(err)
	}
}

func TestAPlanThatSkipsSamplesOrTrainsThemTwiceIsRefused(t *testing.T) {
	for names, spoil := range map[string]func(*Plan){
		"pipelines[0].samples": func(p *Plan) { p.Pipelines[0].Samples = Range{0, 36 - 4} },
		"pipelines[1].samples": func(p *Plan) { p.Pipelines[1].Samples = Range{32, 60} },
		"reroutes[0].samples":  func(p *Plan) { p.Reroutes[0].Samples = Range{44, 60} },
		"reroutes[2].samples":  func(p *Plan) { p.Reroutes[2].Samples = p.Reroutes[0].Samples },
		"expected all 6 micro-batches of n4 at layer 2, got 5": func(p *Plan) { p.Reroutes = p.Reroutes[:3] },
		"expected the 6 micro-batches of n4 at layer 0, got more": func(p *Plan) {
			p.Reroutes[2].MicroBatches, p.Reroutes[2].Samples = 3, Range{52, 64}
		},
		"reroutes: [1]: expected layers of n4 {0 3} that n2 holds, who has {2 4}, got {0 1}": func(p *Plan) {
			p.Reroutes[1].Layers = Range{0, 1}
		},
		"reroutes: [0]: expected layers of n4 {0 3} that n3 holds, who has {4 6}, got {0 0}": func(p *Plan) { p.Reroutes[0].To = "n3" },
		"expected the same micro-batches of n4 at all layers of a reroute to n7, got those from 4 on and from 5 on": func(p *Plan) {
			p.Reroutes = slices.Delete(p.Reroutes, 3, 4)
			p.Reroutes[2].Layers = Range{0, 3}
		},
		"pipelines: [2].stages[0]: expected an active node with one place, got \"n4\"": func(p *Plan) {
			p.Pipelines[2].Stages = []Stage{{"n4", Range{0, 6}}}
		},
	} {
		plan := rerouted().Dealt()
		spoil(plan)
		if err := plan.Validate(); err == nil || !strings.Contains(err.Error(), names) {
			t.Errorf("error %v, expected one that names %s", err, names)
		}
	}
}

func TestWeightsArePartsOfTheWhole(t *testing.T) {
	plan := sound()
	if got := plan.WeightOf("n5"); got != 24.0/64 {
		t.Errorf("n5 weighs %v: expected its share of the samples", got)
	}
	plan.Pipelines[0].Weight, plan.Pipelines[1].Weight = 0.25, 0.75
	if err := plan.Validate(); err != nil || plan.WeightOf("n5") != 0.75 {
		t.Errorf("n5 weighs %v, %v", plan.WeightOf("n5"), err)
	}
	for _, weights := range [][2]float64{{0.25, 0}, {0.5, 0.6}, {-1, 2}} {
		plan.Pipelines[0].Weight, plan.Pipelines[1].Weight = weights[0], weights[1]
		if err := plan.Validate(); err == nil || !strings.Contains(err.Error(), "weight") {
			t.Errorf("weights of %v: %v", weights, err)
		}
	}
}

func TestThePositionInTheDataFollowsFromThePlan(t *testing.T) {
	plan := sound()
	if got := plan.SamplesAt(plan.ResumeStep + 3); got != 76864+3*64 {
		t.Errorf("three steps after %d samples, %d", plan.Data.ConsumedSamples, got)
	}
	if got := plan.SamplesAt(plan.ResumeStep - 1); got != 76864-64 {
		t.Errorf("a step before, %d samples", got)
	}
}

func TestALearningRateGoesToItsNewScaleInEqualParts(t *testing.T) {
	plan := sound()
	plan.LearningRateScale, plan.WarmUp = 2, &WarmUp{FromScale: 1, FirstStep: 1201, Steps: 4}
	if err := plan.Validate(); err != nil {
		t.Fatal(err)
	}
	for step, want := range map[uint64]float64{1200: 1, 1201: 1.25, 1202: 1.5, 1204: 2, 1205: 2, 9000: 2} {
		if got := plan.ScaleAt(step); got != want {
			t.Errorf("scale %v after %d steps, expected %v", got, step, want)
		}
	}
	plan.WarmUp.Steps = 0
	if err := plan.Validate(); err == nil || !strings.Contains(err.Error(), `field "warmUp.steps"`) {
		t.Errorf("a warm-up of no steps: %v", err)
	}
	plan.LearningRateScale, plan.WarmUp = 0, nil
	if got := plan.ScaleAt(0); got != 1 {
		t.Errorf("a plan that says no scale multiplies by %v", got)
	}
}
