package inventory

import (
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine/overlay"
)

func TestAnOldMeasurementIsNotTakenForHowStepsAreNow(t *testing.T) {
	for now, want := range map[float64]string{
		0.2106: "the prediction was 2 % too low", 0.26: "the prediction was 2 % too low", 0: "the prediction was 2 % too low",
		1.792: "the prediction was 2 % too low, before steps became slower",
		0.1:   "the prediction was 2 % too low, before steps became faster",
	} {
		o := Overview{StepTime: now}
		if got := o.compared(overlay.Prediction{PredictedSeconds: 0.2057, MeasuredSeconds: 0.2106, Error: 0.0233}); got != want {
			t.Errorf("steps take %v s: %q, expected %q", now, got, want)
		}
	}
}

func TestAPredictionThatIsRightIsNotToldAsZeroPerCentOff(t *testing.T) {
	right := overlay.Prediction{PredictedSeconds: 0.2057, MeasuredSeconds: 0.2058, Error: 0.0005}
	if got := (Overview{}).compared(right); got != "as predicted" {
		t.Errorf("%q", got)
	}
}

func TestAPredictionOfWhichNobodyHadMeasuredAnythingIsToldAsAGuess(t *testing.T) {
	s := newSite(t)
	s.planned(job, events.Predicted{StepSeconds: 6, Unmeasured: true})
	s.beat("n1", "n2", "n3")
	if printed, err := s.run(Status()); !strings.Contains(printed, "250 ms a step, not predicted: what layers take was not known\n") {
		t.Errorf("%v, expected a guess, and no seconds of it, in\n%s", err, printed)
	}
}

// Status told a third of what was left: each step read its data before it began.
func TestWhatIsLeftFollowsFromOneCompletedStepToTheNext(t *testing.T) {
	s := newSite(t)
	long := job
	long.Steps = 100_000
	s.planned(long, events.Predicted{StepSeconds: 0.25, PeakBytes: map[string]int64{"n1": 1}})
	s.beatWith(func(step uint64) events.Pulse {
		return events.Pulse{Number: step, Generation: 1, Step: step, StepSeconds: 0.25, PaceSeconds: 0.75, Loss: 2.5}
	}, "n1", "n2", "n3")
	s.serve("monitor", "negotiator", "planner", "restorer")
	s.expectStatus(" of 100000, 0 %, 21 h left, loss 2.5, 250 ms a step, and 500 ms between two")
}
