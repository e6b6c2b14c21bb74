package inventory

import (
	"testing"

	"github.com/reknit/reknit/services/monitor/machine/overlay"
)

func TestAnOldMeasurementIsNotTakenForHowStepsAreNow(t *testing.T) {
	for now, want := range map[float64]string{
		0.2106: "2 % less than the 210.6 ms measured", 0.26: "2 % less than the 210.6 ms measured", 0: "2 % less than the 210.6 ms measured",
		1.792: "2 % less than the 210.6 ms measured before steps became slower",
		0.1:   "2 % less than the 210.6 ms measured before steps became faster",
	} {
		o := Overview{StepTime: now}
		if got := o.compared(overlay.Prediction{PredictedSeconds: 0.2057, MeasuredSeconds: 0.2106, Error: 0.0233}); got != want {
			t.Errorf("steps take %v s: %q, expected %q", now, got, want)
		}
	}
}
