package events

import (
	"slices"
	"strings"
	"testing"
)

// rerouted is a sound plan in which n5 and n6 stand in for the second pipeline's lost first stage.
func rerouted() *Plan {
	plan := sound()
	plan.Pipelines[1].Stages = []Stage{{"n4", Range{0, 2}}, {"n5", Range{2, 4}}, {"n6", Range{4, 6}}}
	plan.Sync.Rounds, plan.Migration.Transfers = nil, nil
	plan.Reroutes = []Reroute{{From: "n4", To: "n1", MicroBatches: 4}, {From: "n4", To: "n2", MicroBatches: 2}}
	return plan
}

func TestSamplesAreDealtInThePlansOrder(t *testing.T) {
	plan := rerouted()
	dealt := plan.Dealt()
	if got := dealt.Pipelines[1].Samples; dealt.Pipelines[0].Samples != (Range{0, 40}) || got != (Range{40, 64}) {
		t.Errorf("pipelines train %v and %v: expected 10 and 6 micro-batches of 4 samples",
			dealt.Pipelines[0].Samples, got)
	}
	got := []Range{dealt.Reroutes[0].Samples, dealt.Reroutes[1].Samples}
	if want := []Range{{40, 56}, {56, 64}}; !slices.Equal(got, want) {
		t.Errorf("who stands in trains %v: expected %v, the lost node's samples", got, want)
	}
	trains := map[string][]Range{"n1": {{0, 40}, {40, 56}}, "n3": {{0, 40}}, "n4": nil, "n6": {{40, 64}}}
	for node, want := range trains {
		if got := plan.SamplesOf(node); !slices.Equal(got, want) {
			t.Errorf("%s trains %v: expected %v", node, got, want)
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
		"pipelines[0].samples": func(p *Plan) { p.Pipelines[0].Samples = Range{0, 36} },
		"pipelines[1].samples": func(p *Plan) { p.Pipelines[1].Samples = Range{36, 60} },
		"reroutes[0].samples":  func(p *Plan) { p.Reroutes[0].Samples = Range{44, 60} },
		"reroutes[1].samples":  func(p *Plan) { p.Reroutes[1].Samples = p.Reroutes[0].Samples },
		"all 6 micro-batches":  func(p *Plan) { p.Reroutes[1].MicroBatches = 1 },
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
