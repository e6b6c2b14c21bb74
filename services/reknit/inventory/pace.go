package inventory

import (
	"fmt"
	"time"

	"github.com/reknit/reknit/services/monitor/machine/overlay"
	"github.com/reknit/reknit/services/reknit/tell"
)

func (o Overview) course() string {
	return overlay.SaysCourse(o.Step, o.Steps, time.Duration(o.Left*float64(time.Second)))
}

func (o Overview) pace() string {
	pace := tell.Seconds(o.StepTime) + " a step"
	if o.Pace > paused*o.StepTime {
		pace = fmt.Sprintf("%s, and %s between two", pace, tell.Seconds(o.Pace-o.StepTime))
	}
	switch p := o.Prediction; {
	case p != nil:
		pace += "; " + o.compared(*p)
		if p.Why != "" {
			pace += " (" + p.Why + ")"
		}
	case o.Predicted > 0:
		pace += fmt.Sprintf(", %s predicted", tell.Seconds(o.Predicted))
	case o.Guessed:
		pace += ", not predicted: what layers take was not known"
	}
	if o.Diverged > 0 {
		pace = fmt.Sprintf("loss not finite since step %d, %s", o.Diverged, pace)
	} else if o.Loss > 0 {
		pace = fmt.Sprintf("loss %.4g, %s", o.Loss, pace)
	}
	return pace
}

// paused is from how many times the seconds of a step on it is told what lies between two: less is scatter.
const paused = 1.1

// otherPace is by how much a step takes more or less than those that were measured, and is no scatter: one step of one node is seen.
const otherPace = 1.5

// compared says by how much a prediction was off when it was measured, and whether steps became others since.
func (o Overview) compared(p overlay.Prediction) string {
	off, since := "low", ""
	if p.PredictedSeconds > p.MeasuredSeconds {
		off = "high"
	}
	switch {
	case o.StepTime > otherPace*p.MeasuredSeconds:
		since = ", before steps became slower"
	case o.StepTime > 0 && o.StepTime < p.MeasuredSeconds/otherPace:
		since = ", before steps became faster"
	}
	if p.Error < 0.005 {
		return "as predicted" + since
	}
	return fmt.Sprintf("the prediction was %.0f %% too %s%s", 100*p.Error, off, since)
}
