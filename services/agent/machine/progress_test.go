package machine

import (
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

// paces trains steps of so many seconds, of which passes take some, and returns what is told of them.
func (n *node) paces(steps int, seconds, passes float64) (told []events.Pace) {
	for range steps {
		if passes > 0 {
			n.machine.Computed(passes)
		}
		for _, action := range n.machine.Completed(now.Add(time.Second), n.machine.done+1, seconds) {
			if say, is := action.(Say); is && say.Event.Kind == events.PlanMeasured {
				pace, err := events.Open[events.Pace](say.Event)
				if err != nil {
					n.t.Fatal(err)
				}
				told = append(told, pace)
			}
		}
	}
	return told
}

func TestStepsOfAPlanAreToldWithTheirPasses(t *testing.T) {
	n := trainingNode(t, 14)
	told := n.paces(40, 2, 1.5)
	if len(told) != 1 || told[0].StepSeconds != 2 || told[0].ComputeSeconds != 1.5 || told[0].Steps != firstSteps {
		t.Errorf("told %+v: expected 2 s, once, 1.5 s of them passes", told)
	}
	if told = n.paces(80, 3, 0); len(told) != 1 || told[0].StepSeconds != 3 || told[0].ComputeSeconds != 0 {
		t.Errorf("told %+v: expected 3 s, and nothing of passes that nobody measured", told)
	}
}

func TestStepsThatBecomeFasterAreToldAsThoseThatBecomeSlower(t *testing.T) {
	for _, then := range []float64{1, 4} {
		n := trainingNode(t, 14)
		n.paces(40, 2, 0)
		if told := n.paces(80, then, 0); len(told) != 1 || told[0].StepSeconds != then {
			t.Errorf("of steps that took 2 s and take %v s it tells %+v", then, told)
		}
	}
}
