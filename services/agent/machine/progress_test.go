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

// Five steps are soon told of, and are few: of a processor that others use, too, they show one state.
func TestMoreStepsTellMoreExactlyWhatOneTakes(t *testing.T) {
	n := trainingNode(t, 14)
	if told := n.paces(warmSteps+firstSteps, 0.1, 0); len(told) != 1 || told[0].StepSeconds != 0.1 {
		t.Errorf("told %+v: expected the first steps", told)
	}
	if told := n.paces(5, 0.15, 0); len(told) != 1 || told[0].StepSeconds != 0.15 || told[0].Steps != 10 {
		t.Errorf("told %+v: expected that half of ten steps take longer", told)
	}
	if told := n.paces(30, 0.104, 0); len(told) != 1 || told[0].StepSeconds != 0.104 || told[0].Steps != 20 {
		t.Errorf("told %+v: expected the median of twenty steps, once", told)
	}
	if told := n.paces(40, 0.109, 0); len(told) != 1 || told[0].StepSeconds != 0.109 || told[0].Steps != 80 {
		t.Errorf("told %+v: expected that most steps take 5 %% more", told)
	}
	if told := n.paces(1500, 0.111, 0); len(told) != 0 {
		t.Errorf("told %+v: steps take 2 %% more", told)
	}
}

func TestAfterALongLookOneThatDiffersByATenthIsTold(t *testing.T) {
	n := trainingNode(t, 14)
	n.paces(100, 1, 0)
	if told := n.paces(130, 1.08, 0); len(told) != 0 {
		t.Errorf("told %+v: steps scatter by that", told)
	}
	if told := n.paces(20, 18, 0); len(told) != 1 || told[0].StepSeconds != 18 || told[0].Steps != firstSteps {
		t.Errorf("told %+v: expected that steps became very slow, within ten of them", told)
	}
}

// The first thousand steps of a minute stood for all of it: others used the processor in its first 20 s.
func TestALookSeesStepsAllOverItsMinute(t *testing.T) {
	n := trainingNode(t, 14)
	n.paces(warmSteps+1000, 0.02, 0)
	told := n.paces(4000, 0.01, 0.008)
	if len(told) != 1 || told[0].StepSeconds != 0.01 || told[0].ComputeSeconds != 0.008 || told[0].Steps <= 2*mostSteps {
		t.Errorf("told %+v: expected that most steps of the minute took 10 ms, 8 of them passes", told)
	}
	if kept := cap(n.machine.steps.seconds); kept > 2*mostSteps {
		t.Errorf("there is room for %d steps", kept)
	}
}

func TestStepsThatWaverAreToldOnceAMinuteAtMost(t *testing.T) {
	n := trainingNode(t, 14)
	told := 0
	for step := range 36_000 { // an hour
		told += len(n.paces(1, 0.05+0.1*float64(step/700%2), 0))
	}
	if told > 60+10 {
		t.Errorf("told %d times in an hour", told)
	}
}

// The time left at the pace of steps alone was a third of what it took: each step reads its data before it begins.
func TestThePaceIsFromOneCompletedStepToTheNextWithWhatLiesBetween(t *testing.T) {
	n, at := trainingNode(t, 14), now
	complete := func(after float64) {
		at = at.Add(time.Duration(after * float64(time.Second)))
		n.machine.Completed(at, n.machine.done+1, 1)
	}
	complete(60) // the first step of the plan has the change in it
	if pace := n.machine.Snapshot().Pace; pace != 0 {
		t.Errorf("after the first step of a plan it is %v s, expected that it is not known", pace)
	}
	for range 50 {
		complete(2)
		complete(4)
	}
	if pace := n.machine.Snapshot().Pace; pace < 2.99 || pace > 3.01 {
		t.Errorf("it is %v s, expected the mean of 2 s and 4 s", pace)
	}
}
