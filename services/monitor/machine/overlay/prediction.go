package overlay

import (
	"cmp"
	"fmt"
	"maps"
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
	Why              string  `json:"why,omitempty"`   // the error is larger than a tenth, as far as that is known
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
	if p.Error > worthAReason {
		p.Why = cmp.Or(o.changed(p.MeasuredSeconds > p.PredictedSeconds), o.outside(p), o.crowded(p))
	}
	return &p
}

// passes are those of a micro-batch in some layers.
type passes struct {
	layers  events.Range
	seconds float64
}

// remember keeps what passes took at members of the next plan. MostPacers nodes tell it of each plan.
func (o *Overlay) remember(next *events.Plan) {
	for node, pace := range o.paces {
		if took, known := o.passes(node, pace); known {
			o.before[node] = took
		}
	}
	maps.DeleteFunc(o.before, func(node string, _ passes) bool { _, stays := next.Member(node); return !stays })
}

// passes returns what a micro-batch takes at a node that trains under the plan in force. O(nodes).
func (o *Overlay) passes(node string, pace events.Pace) (passes, bool) {
	for _, pipeline := range o.plan.Pipelines {
		for _, stage := range pipeline.Stages {
			if stage.Node == node && pace.ComputeSeconds > 0 && pipeline.MicroBatches > 0 {
				return passes{stage.Layers, pace.ComputeSeconds / float64(pipeline.MicroBatches)}, true
			}
		}
	}
	return passes{}, false
}

// changed says at which node the same passes take longer, or less, than under a plan before, by more than a tenth: it is another
// machine then than the one that was measured. Empty: at none that told both times, of the same layers. O(nodes).
func (o *Overlay) changed(longer bool) string {
	most, at := 1+worthAReason, ""
	for _, member := range o.plan.Nodes { // in their order, so that the answer is one
		before, told := o.before[member.Node]
		pace, tells := o.paces[member.Node] // of MostPacers at most
		if !told || !tells {
			continue
		}
		now, known := o.passes(member.Node, pace)
		if !known || now.layers != before.layers {
			continue
		}
		times := now.seconds / before.seconds
		if !longer {
			times = 1 / times
		}
		if times > most {
			most, at = times, member.Node
		}
	}
	switch {
	case at == "":
		return ""
	case longer:
		return fmt.Sprintf("the same passes take %.2g times as long at %s as under the plan before", most, at)
	}
	return fmt.Sprintf("the same passes took %.2g times as long at %s under the plan before", most, at)
}

// outside says at which node most of a step is outside of its passes, which take no longer than the whole step was predicted to: then
// processors are not what makes it long. Empty: at none that tells what its passes take.
func (o *Overlay) outside(p Prediction) string {
	for _, member := range o.plan.Nodes { // in their order, so that the answer is one
		pace := o.paces[member.Node]
		rest := pace.StepSeconds - pace.ComputeSeconds
		fits := pace.ComputeSeconds > 0 && pace.ComputeSeconds <= p.PredictedSeconds
		if fits && pace.StepSeconds >= p.MeasuredSeconds && 2*rest > pace.StepSeconds {
			return fmt.Sprintf("of %.3g s a step at %s %.3g s are outside of its passes: "+
				"its script reads data or waits, or it waits for others", pace.StepSeconds, member.Node, rest)
		}
	}
	return ""
}

// crowded says of which host more trainers than it has processors are, where steps take longer than predicted; empty: of none that
// tells how many it has.
func (o *Overlay) crowded(p Prediction) string {
	if p.MeasuredSeconds < p.PredictedSeconds {
		return ""
	}
	trainers := map[string]int{}
	for node := range o.plan.HoldsOfAll() {
		if member, lives := o.plan.Member(node); lives {
			trainers[hostOf(member.Address)]++
		}
	}
	for _, member := range o.plan.Nodes { // in their order, so that the answer is one
		host, processors := hostOf(member.Address), o.paces[member.Node].Processors
		if processors > 0 && trainers[host] > processors {
			return fmt.Sprintf("perhaps because %d trainers share the %d processors of %s", trainers[host], processors, host)
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
