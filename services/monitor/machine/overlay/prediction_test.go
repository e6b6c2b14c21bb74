package overlay

import (
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

// planned is an overlay with a plan of some nodes of one host, that is predicted to take a second a step.
func planned(unmeasured bool, nodes ...string) *Overlay {
	o := New()
	o.plan = &events.Plan{Generation: 4, Predicted: events.Predicted{StepSeconds: 1, Unmeasured: unmeasured}}
	for _, node := range nodes {
		o.plan.Nodes = append(o.plan.Nodes, events.Member{Node: node, Address: "10.0.0.1:70" + node[1:]})
		o.plan.Pipelines = append(o.plan.Pipelines, events.Pipeline{Stages: []events.Stage{{Node: node, Layers: events.Range{End: 1}}}})
	}
	return o
}

func (o *Overlay) tell(node string, generation uint64, seconds float64, processors int) {
	o.passed(node, generation, seconds, 0, processors)
}

// passed tells a pace with its passes.
func (o *Overlay) passed(node string, generation uint64, seconds, passes float64, processors int) {
	speaker := events.Speaker{Source: events.NodeSource(node), Cluster: "opticks"}
	o.Take(speaker.Say(events.Event{}, events.PlanMeasured, node, &events.Pace{
		Node: node, Generation: generation, StepSeconds: seconds, Steps: 10, ComputeSeconds: passes, Processors: processors,
	}))
}

func TestAPredictionIsComparedWithTheMedianOfThoseThatMayTell(t *testing.T) {
	o := planned(false, "n1", "n2", "n3", "n4")
	if o.Prediction() != nil {
		t.Error("nothing was measured, and it is compared")
	}
	o.tell("n1", 4, 1.25, 0)
	o.tell("n2", 4, 1000, 0) // a liar
	o.tell("n3", 4, 1.2, 0)
	o.tell("n4", 4, 1e-3, 0) // the fourth has no say
	o.tell("n3", 3, 7, 0)    // of the plan before
	p := o.Prediction()
	if p == nil || p.MeasuredSeconds != 1.25 || p.PredictedSeconds != 1 || p.Error != 0.2 || p.Why != "" {
		t.Errorf("%+v", p)
	}
}

func TestAGuessIsNotCompared(t *testing.T) {
	o := planned(true, "n1")
	o.tell("n1", 4, 1.25, 0)
	if p := o.Prediction(); p != nil {
		t.Errorf("%+v", p)
	}
}

func TestWhyStepsTakeLongerIsToldWhereItIsCertain(t *testing.T) {
	for _, test := range []struct {
		seconds    float64
		processors int
		says       string
	}{{3, 2, "perhaps because 3 trainers share the 2 processors of 10.0.0.1"}, {3, 3, ""}, {3, 0, ""}, {1.05, 2, ""}, {0.5, 2, ""}} {
		o := planned(false, "n1", "n2", "n3")
		o.tell("n2", 4, test.seconds, test.processors)
		if p := o.Prediction(); p == nil || !strings.Contains(p.Why, test.says) || test.says == "" && p.Why != "" {
			t.Errorf("%v s with %d processors: %+v, expected %q", test.seconds, test.processors, p, test.says)
		}
	}
}

// A script that slept was told that its trainers share their processors.
func TestWhereMostOfAStepIsOutsideOfItsPassesNoProcessorsAreBlamed(t *testing.T) {
	for passes, says := range map[float64]string{
		0.9: "of 3 s a step at n2 2.1 s are outside of its passes",
		1.4: "perhaps because 3 trainers share the 2 processors", // passes alone take longer than was predicted
		0:   "perhaps because 3 trainers share the 2 processors", // nobody told
	} {
		o := planned(false, "n1", "n2", "n3")
		o.passed("n2", 4, 3, passes, 2)
		if p := o.Prediction(); p == nil || !strings.HasPrefix(p.Why, says) {
			t.Errorf("passes of %v s: %+v, expected %q", passes, p, says)
		}
	}
}

// A machine that became slower, or faster, explains what a planner could not foresee. Other layers take another time, and explain nothing.
func TestWhereAMachineIsAnotherThanWasMeasuredThatIsToldAsTheReason(t *testing.T) {
	for _, test := range []struct {
		seconds, passes float64
		layers          int
		says            string
	}{
		{1.5, 3.2, 1, "the same passes take 1.6 times as long at n1 as under the plan before"},
		{0.6, 1, 1, "the same passes took 2 times as long at n1 under the plan before"},
		{1.5, 1, 1, ""}, // faster, and steps take longer
		{1.05, 3, 1, ""},
		{1.5, 3, 2, ""},
		{1.5, 0, 1, ""},
	} {
		o := planned(false, "n1", "n2")
		o.plan.Pipelines[0].MicroBatches = 2
		o.passed("n1", 4, 1, 2, 0)
		next := planned(false, "n1").plan
		next.Generation, next.Pipelines[0].MicroBatches, next.Pipelines[0].Stages[0].Layers.End = 5, 2, test.layers
		o.commit(*next, time.Time{})
		o.passed("n1", 5, test.seconds, test.passes, 0)
		if p := o.Prediction(); p == nil || p.Why != test.says {
			t.Errorf("%+v: %+v", test, p)
		}
	}
}
