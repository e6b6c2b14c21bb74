package overlay

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/reknit/reknit/events"
)

// Prediction is the step that a planner expected of the plan in force beside those that were measured under it.
type Prediction struct {
	PredictedSeconds float64 `json:"predictedSeconds"`
	MeasuredSeconds  float64 `json:"measuredSeconds"` // the median of the first few nodes that tell
	Error            float64 `json:"error"`           // the difference, of what was measured: 0.1 is a tenth
	Why              string  `json:"why,omitempty"`   // steps take longer than predicted, where that is certain
}

// worthAReason is from what error on a reason is told: the estimator is meant to be within it.
const worthAReason = 0.1

// pace hears how long the steps of the plan in force take.
func (o *Overlay) pace(event events.Event) {
	pace, err := events.Open[events.Pace](event)
	if err == nil && o.plan != nil && pace.Generation == o.plan.Generation && o.plan.Paced(pace.Node) {
		o.paces[pace.Node] = pace
	}
}

// Prediction returns how the prediction of the plan in force compares; nil where nothing was predicted, or nothing was measured
// under it yet. O(nodes) where it is far off.
func (o *Overlay) Prediction() *Prediction {
	if o.plan == nil || o.plan.Predicted.Unmeasured || o.plan.Predicted.StepSeconds <= 0 || len(o.paces) == 0 {
		return nil
	}
	var seconds []float64
	for _, pace := range o.paces {
		seconds = append(seconds, pace.StepSeconds)
	}
	slices.Sort(seconds)
	p := Prediction{PredictedSeconds: o.plan.Predicted.StepSeconds, MeasuredSeconds: seconds[(len(seconds)-1)/2]}
	p.Error = math.Abs(p.PredictedSeconds-p.MeasuredSeconds) / p.MeasuredSeconds
	if p.Error > worthAReason && p.MeasuredSeconds > p.PredictedSeconds {
		p.Why = o.crowded()
	}
	return &p
}

// crowded says of which host more trainers than it has processors are; empty: of none that tells how many it has.
func (o *Overlay) crowded() string {
	trainers := map[string]int{}
	for node := range o.plan.HoldsOfAll() {
		if member, lives := o.plan.Member(node); lives {
			trainers[hostOf(member.Address)]++
		}
	}
	for _, member := range o.plan.Nodes { // in their order, so that the answer is one
		host, processors := hostOf(member.Address), o.paces[member.Node].Processors
		if processors > 0 && trainers[host] > processors {
			return fmt.Sprintf("%d trainers share the %d processors of %s", trainers[host], processors, host)
		}
	}
	return ""
}

func hostOf(address string) string {
	if at := strings.LastIndexByte(address, ':'); at >= 0 {
		return address[:at]
	}
	return address
}
