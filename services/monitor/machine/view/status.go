package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine/changes"
	"github.com/reknit/reknit/services/monitor/machine/overlay"
)

// Status is the cluster in a line, and its figures.
type Status struct {
	Cluster     string         `json:"cluster"`
	Level       string         `json:"level"` // one of the constants
	Says        string         `json:"says"`
	Generation  uint64         `json:"generation"`
	Step        uint64         `json:"step"`
	Course      string         `json:"course,omitempty"` // how far that is in the job, where its end is known
	Loss        float64        `json:"loss"`
	Diverged    uint64         `json:"diverged,omitempty"` // the step since which the loss is not finite
	Rate        float64        `json:"rate"`               // samples a second, of the last seconds
	StepSeconds float64        `json:"stepSeconds"`        // of the median node
	PaceSeconds float64        `json:"paceSeconds"`        // from one completed step to the next
	States      map[string]int `json:"states"`             // nodes by state

	Delayed []string `json:"delayed,omitempty"` // for whom others wait in their step for longer than is usual

	Snapshots []overlay.Snapshot `json:"snapshots,omitempty"` // by tier; none: nobody takes any, or none is complete yet

	Prediction *overlay.Prediction `json:"prediction,omitempty"` // left out where there is none to compare
}

// Levels of a status.
const (
	Idle    = "idle"    // nothing is trained yet, or the job is complete
	Calm    = "calm"    // all is well
	Busy    = "change"  // a change is under way
	Trouble = "trouble" // somebody is missing, or the cluster holds
)

func (v *View) status(nodes []overlay.Node, plan *events.Plan, now time.Time) Status {
	status := Status{
		Cluster: v.cluster, Step: v.progress.step, Loss: v.progress.loss, Diverged: v.progress.diverged, Rate: v.progress.rate(),
		StepSeconds: overlay.StepTime(nodes), PaceSeconds: overlay.Pace(nodes), States: map[string]int{},
	}
	for _, node := range nodes {
		status.States[node.State]++
	}
	if plan != nil {
		status.Generation = plan.Generation
	}
	status.Prediction, status.Snapshots = v.overlay.Prediction(), v.overlay.Snapshots()
	if end := v.overlay.End(); end != nil {
		status.Step, status.Rate, status.StepSeconds, status.PaceSeconds = end.Step, 0, 0, 0
	} else if stop := v.overlay.Stop(); stop != nil {
		status.Step, status.Rate, status.StepSeconds, status.PaceSeconds = stop.Step, 0, 0, 0
	}
	if v.overlay.End() == nil && v.overlay.Reset() == nil {
		steps, left := v.overlay.Course(status.Step, cmp.Or(status.PaceSeconds, status.StepSeconds))
		status.Course = overlay.SaysCourse(status.Step, steps, left)
	}
	delays := v.overlay.Delays(nodes)
	for _, delay := range delays {
		status.Delayed = append(status.Delayed, delay.Node)
	}
	status.Level, status.Says = v.level(status, nodes, now)
	rests, _ := overlay.SaysRests(delays)
	if says := cmp.Or(overlay.SaysDelays(delays, now), rests); says != "" && status.Level == Calm {
		status.Level, status.Says = Trouble, says
	}
	return status
}

func (v *View) level(status Status, nodes []overlay.Node, now time.Time) (level, says string) {
	if end := v.overlay.End(); end != nil {
		return Idle, "the job is complete: " + end.String()
	}
	if reset := v.overlay.Reset(); reset != nil {
		if _, under := v.underWay(); !under {
			return Idle, overlay.SaysReset(*reset)
		}
	}
	stop := v.overlay.Stop()
	if change, under := v.underWay(); stop != nil && (!under || change.Held != nil && !overlay.AnyWaits(nodes)) {
		return Idle, stop.String()
	}
	if status.Diverged > 0 {
		says, todo := overlay.Diverged(status.Diverged, status.Snapshots)
		return Trouble, says + ". " + todo
	}
	if change, under := v.underWay(); under {
		level, says = levelOf(change)
		if late := v.progress.late(now); level == Busy && late != "" && stop == nil && !v.overlay.Stepless() {
			return Trouble, says + "; " + late
		}
		return level, says
	}
	missing := func(node overlay.Node) bool {
		return node.State == overlay.Lost || node.State == overlay.Suspected || node.State == overlay.Silent
	}
	training, ended := status.States[overlay.Training], status.States[overlay.Ended]
	switch i := slices.IndexFunc(nodes, missing); {
	case i >= 0:
		says = nodes[i].Node + " is " + nodes[i].State + unheard(nodes[i], now)
		if others := status.States[overlay.Lost] + status.States[overlay.Suspected] + status.States[overlay.Silent] - 1; others > 0 {
			says += fmt.Sprintf(", and %d more are missing", others)
		}
		return Trouble, says
	case ended > 0 && training == 0:
		return Idle, "training is complete"
	case status.Generation == 0:
		return Idle, "no plan yet: it waits for trainers"
	case training > 0 && !v.overlay.Stepless() && v.progress.late(now) != "" &&
		len(status.Delayed) == 0:
		return Trouble, v.progress.late(now)
	case len(status.failing(now)) > 0:
		return Trouble, status.failing(now)
	case len(status.late()) > 0:
		return Trouble, status.late()[0].Says(now)
	case training == 1:
		return Calm, "1 node trains"
	}
	return Calm, fmt.Sprintf("%d nodes train", training)
}

// unheard says for how long nothing was heard of a node; empty where that is not known.
func unheard(node overlay.Node, now time.Time) string {
	if node.Unheard.IsZero() {
		return ""
	}
	return fmt.Sprintf(": no heartbeat for %v", now.Sub(node.Unheard).Round(time.Second))
}

// late are the tiers of snapshots of which none is complete for too long.
func (s Status) late() []overlay.Snapshot {
	return slices.DeleteFunc(slices.Clone(s.Snapshots), func(tier overlay.Snapshot) bool { return !tier.Late(s.Step) })
}

// failing tells which nodes cannot write snapshots, of the first tier of which that is known; empty: all can.
func (s Status) failing(now time.Time) string {
	for _, tier := range s.Snapshots {
		if says, todo := tier.SaysFailing(now); says != "" {
			return says + ". " + todo
		}
	}
	return ""
}

// underWay returns the newest change that is not done with.
func (v *View) underWay() (Change, bool) {
	for _, generation := range slices.Backward(slices.Sorted(maps.Keys(v.told))) {
		switch change := v.told[generation]; {
		case generation < v.record.Committed():
			return Change{}, false
		case change.State == changes.Negotiating || change.State == changes.Committed || change.State == changes.Pending:
			return change, true
		}
	}
	return Change{}, false
}

func levelOf(change Change) (level, says string) {
	switch {
	case change.Held != nil && (change.Held.Step != nil || strings.HasPrefix(change.Held.Reason, events.OlderLog)): // which name a command
		return Trouble, "the cluster holds: " + change.Held.Reason
	case change.Held != nil:
		return Trouble, "the cluster holds: " + change.Held.Reason + "; reknit doctor says what helps"
	case change.Waiting != "":
		return Busy, "it waits: " + change.Waiting
	case change.Now == nil:
		return Busy, change.What + ": it begins anew"
	case change.State == changes.Committed:
		return Busy, change.What + ": committed, waiting for first steps"
	case change.Now.Waits == 0:
		return Busy, fmt.Sprintf("%s: %s", change.What, change.Now.Phase)
	case change.Now.Waits == 1:
		return Busy, fmt.Sprintf("%s: %s, waiting for %s", change.What, change.Now.Phase, change.Now.Awaits[0])
	}
	return Busy, fmt.Sprintf("%s: %s, waiting for %s and %d more", change.What, change.Now.Phase, change.Now.Awaits[0], change.Now.Waits-1)
}
