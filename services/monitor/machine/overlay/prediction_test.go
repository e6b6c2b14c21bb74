package overlay

import (
	"strings"
	"testing"

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
	speaker := events.Speaker{Source: events.NodeSource(node), Cluster: "opticks"}
	o.Take(speaker.Say(events.Event{}, events.PlanMeasured, node, &events.Pace{
		Node: node, Generation: generation, StepSeconds: seconds, Steps: 10, Processors: processors,
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
	}{{3, 2, "3 trainers share the 2 processors of 10.0.0.1"}, {3, 3, ""}, {3, 0, ""}, {1.05, 2, ""}, {0.5, 2, ""}} {
		o := planned(false, "n1", "n2", "n3")
		o.tell("n2", 4, test.seconds, test.processors)
		if p := o.Prediction(); p == nil || !strings.Contains(p.Why, test.says) || test.says == "" && p.Why != "" {
			t.Errorf("%v s with %d processors: %+v, expected %q", test.seconds, test.processors, p, test.says)
		}
	}
}
