package overlay

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine/changes"
)

// Node is a node of a cluster.
type Node struct {
	Node        string        `json:"node"`
	Name        string        `json:"name,omitempty"`   // that it claims
	State       string        `json:"state"`            // one of the constants
	Reason      string        `json:"reason,omitempty"` // of the state, as it was said
	Site        string        `json:"site,omitempty"`
	Address     string        `json:"address"`
	Incarnation string        `json:"incarnation"`
	Pipeline    *int          `json:"pipeline,omitempty"` // left out where it has no place
	Stage       *int          `json:"stage,omitempty"`
	Layers      *events.Range `json:"layers,omitempty"`
	MemoryBytes int64         `json:"memoryBytes,omitempty"`
	PeakBytes   int64         `json:"peakBytes,omitempty"` // that the plan fills
	SpeedFactor float64       `json:"speedFactor,omitempty"`
	// Joined is when its process asked for its place, by the log's clock; left out where the log has dropped that.
	Joined time.Time `json:"joined,omitzero"`
	// Step is how many steps it has completed: by its last heartbeat, and where none was heard as the log tells.
	Step uint64 `json:"step,omitempty"`
	// Until is when a node that waits for its turn is asked to take part; left out where it waits for nothing of that kind.
	Until time.Time `json:"until,omitzero"`
	// Unheard is since when nothing was heard of a node that is suspected or silent, as far as is known.
	Unheard time.Time `json:"unheard,omitzero"`
	// Keeps is when its agent said that it keeps what the trainer left, for the next one and for others; left out where nothing is kept.
	Keeps time.Time `json:"keeps,omitzero"`
	// Proven tells that its process is gone for certain, with what it held.
	Proven bool `json:"proven,omitempty"`
	// Stepless tells that its script knows nothing of its agent, which has neither steps nor memory to tell of.
	Stepless bool `json:"stepless,omitempty"`
	// Pulse is its last heartbeat; left out where none was heard.
	Pulse *events.Pulse `json:"pulse,omitempty"`
}

// The states of a node.
const (
	Training  = "training"
	Spare     = "spare"     // active, without a place
	Starting  = "starting"  // its script runs, and has not given its state yet
	Joining   = "joining"   // it asked for a place and has none yet
	Leaving   = "leaving"   // it asked to go, or was drained, and is needed still
	Suspected = "suspected" // it may have failed
	Lost      = "lost"      // it has, and no plan is there without it yet, or its agent runs on
	Silent    = "silent"    // nothing says that it failed, and it sends no heartbeats
	Ended     = "ended"     // the job is complete, or training is for this node
)

// isBack is why a member's place is asked for again, by whether the process that asks holds what was trained there.
var isBack = map[bool]string{
	true:  "it asked for its place again, with what it has trained",
	false: "it asked for its place again, and has nothing of what it trained",
}

const hasGone = "it asked for its place again, and is gone since"

// told is what the log tells of a node, in the log's order.
type told struct {
	join                               *events.Join // the last
	joined                             time.Time    // when it asked
	leaving, suspected, lost, expected bool
	gone                               bool // it asked for a place and has none to wait for
	keeps                              time.Time
	proven                             bool // it is gone, and what it held
	reason                             string
	went                               time.Time         // when that was said
	unheard                            time.Time         // since when nothing was heard of it, where it is suspected
	step                               uint64            // by the heartbeat after which it was missed; zero: not known
	wished                             time.Time         // to leave; zero: it did not
	turn                               *events.JoinDelay // it is asked to take part only later
	due                                time.Time         // when
	refusal                            *changes.Refusal  // of what it asked for last; nil: it was not, or something newer is known of it
}

// take hears an event about the node.
func (n *told) take(event events.Event) {
	n.refusal = nil
	switch event.Kind {
	case events.JoinRequested:
		if join, err := events.Open[events.Join](event); err == nil {
			*n = told{join: &join, joined: event.Logged}
		}
	case events.LeaveRequested:
		n.leaving, n.wished, n.reason = true, event.Logged, reasonOf(event)
		n.keeps = time.Time{} // its agent ends with it
		n.goes(event.Logged)
	case events.MembershipRefused:
		n.refuse(event)
	case events.JoinDelayed:
		n.await(event)
	case events.NodeSuspected:
		n.suspected = true
		n.miss(event)
	case events.NodeCleared:
		n.suspected, n.reason, n.unheard = false, "", time.Time{}
	case events.NodeLost:
		n.lost, n.gone = true, true
		n.miss(event)
		n.goes(event.Logged)
	case events.NodeExited:
		exit, err := events.Open[events.Exit](event)
		if isOf := n.join == nil || n.join.Incarnation == exit.Incarnation; err == nil && isOf { // else another process has the name by now
			n.expected, n.gone, n.reason = exit.Expected, true, exit.Reason+n.afterWish(event.Logged)
			n.leave(exit, event.Logged)
			n.goes(event.Logged)
		}
	}
}

// goes notes when the node went, or asked to: the first sign of it.
func (n *told) goes(at time.Time) {
	if n.went.IsZero() {
		n.went = at
	}
}

// leave notes what the end of the node's process leaves.
func (n *told) leave(exit events.Exit, at time.Time) {
	n.keeps, n.proven = time.Time{}, !exit.Keeps && !exit.Hangs
	if exit.Keeps {
		n.keeps = at
	}
}

// await notes that the node waits for its turn. Words to an earlier process of it count no more.
func (n *told) await(event events.Event) {
	delay, err := events.Open[events.JoinDelay](event)
	if err == nil && n.join != nil && delay.Incarnation == n.join.Incarnation {
		n.turn, n.due = &delay, event.Logged.Add(time.Duration(delay.Seconds*float64(time.Second)))
	}
}

// waits says until when the node waits for its turn, and why; empty where it does not.
func (n *told) waits() (until time.Time, why string) {
	if n.turn == nil {
		return time.Time{}, ""
	}
	return n.due, fmt.Sprintf("it is asked at %s: %s", n.due.Local().Format("01-02 15:04:05"), n.turn.Reason)
}

// miss notes why, and since which step, a node is missed.
func (n *told) miss(event events.Event) {
	n.reason = reasonOf(event) + n.afterWish(event.Logged)
	if state, err := events.Open[events.NodeState](event); err == nil {
		n.step = max(n.step, state.Step)
		n.unheard = event.Logged.Add(-time.Duration(state.SilentSeconds * float64(time.Second)))
		n.proven = n.proven || state.Proven
	}
}

// wishHolds is for how long the end of a node is told beside its wish to leave: who stops a job that the cluster does not let
// go ends it within seconds.
const wishHolds = time.Minute

// afterWish says how long after its wish to leave a node ended, so that who stopped it does not take that for an accident.
func (n *told) afterWish(ended time.Time) string {
	after := ended.Sub(n.wished)
	if n.wished.IsZero() || after > wishHolds {
		return ""
	}
	return fmt.Sprintf(", %.1f s after it asked to leave", max(0, after.Seconds()))
}

// refuse notes that what the node asked for was refused, or that it is no member any more. Why it was lost is known better.
func (n *told) refuse(event events.Event) {
	refusal, err := events.Open[events.Refusal](event)
	if err != nil {
		return
	}
	if refusal.Refused != events.RefusedMembership && !refusal.Stopped { // else it did as all were asked to
		n.refusal = &changes.Refusal{Refusal: refusal, At: event.Logged}
	}
	switch isOf := n.join != nil && refusal.Incarnation == n.join.Incarnation; {
	case refusal.Refused == events.ChangeLeave:
		n.leaving, n.went = false, time.Time{}
	case isOf && n.gone:
	case isOf:
		n.gone, n.reason = true, refusal.Reason
		n.goes(event.Logged)
	}
}

func reasonOf(event events.Event) string {
	var payload struct {
		Reason string `json:"reason"`
	}
	if json.Unmarshal(event.Data, &payload) != nil {
		return ""
	}
	return payload.Reason
}

// placesOf returns where each node of a plan trains.
func placesOf(plan events.Plan) map[string]events.Place {
	places := map[string]events.Place{}
	for p, pipeline := range plan.Pipelines {
		for s, stage := range pipeline.Stages {
			places[stage.Node] = events.Place{Pipeline: p, Stage: s}
		}
	}
	return places
}

func (o *Overlay) member(member events.Member, places map[string]events.Place, pulses map[string]events.Pulse) Node {
	device := o.devices[member.Node]
	node := Node{
		Node: member.Node, Name: member.Name, State: Spare, Site: member.Site, Address: member.Address, Incarnation: member.Incarnation,
		MemoryBytes: device.MemoryBytes, SpeedFactor: device.SpeedFactor, PeakBytes: o.plan.Predicted.PeakBytes[member.Node],
		Stepless: o.stepless,
	}
	if place, placed := places[member.Node]; placed {
		layers := o.plan.Pipelines[place.Pipeline].Stages[place.Stage].Layers
		node.State, node.Pipeline, node.Stage, node.Layers = Training, &place.Pipeline, &place.Stage, &layers
	}
	if idle, isIdle := o.plan.IdleOf(member.Node); isIdle {
		node.Reason = idle.Why(o.plan.Predicted)
	}
	if pulse, heard := pulses[member.Node]; heard && pulse.Incarnation == member.Incarnation {
		node.Pulse = &pulse
	}
	node.Step = o.stepOf(node)
	if told := o.told[node.Node]; told != nil && node.Pulse == nil {
		node.Keeps, node.Proven = told.keeps, told.proven
	}
	if told := o.told[node.Node]; told != nil && told.join != nil && told.join.Incarnation == node.Incarnation {
		node.Joined = told.joined
	}
	o.judge(&node)
	if node.State == Training && node.Pulse != nil && node.Pulse.Script != nil {
		node.Reason = saysScript(*node.Pulse.Script)
	}
	return node
}

// takes returns a node that asked to join, in the place of the process before it.
func (n Node) takes(before Node, join events.Join) Node {
	n.Pipeline, n.Stage, n.Layers = before.Pipeline, before.Stage, before.Layers
	n.PeakBytes, n.SpeedFactor, n.Stepless = before.PeakBytes, before.SpeedFactor, before.Stepless
	if n.Reason == "" && before.State == Lost {
		n.Reason = isBack[join.Trained != nil]
	}
	return n
}

// stepOf returns how many steps a member has completed, as far as is known; zero: nothing is.
func (o *Overlay) stepOf(node Node) uint64 {
	switch told := o.told[node.Node]; {
	case node.Pulse != nil:
		return node.Pulse.Step
	case o.end != nil && slices.Contains(o.end.Nodes, node.Node):
		return o.end.Step
	case o.stop != nil:
		return o.stop.Step
	case told != nil:
		return told.step
	}
	return 0
}

// judge changes the state of a member by what was said of it.
func (o *Overlay) judge(node *Node) {
	told := o.told[node.Node]
	isOf := told != nil && (told.join == nil || told.join.Incarnation == node.Incarnation) // the log may have dropped the join
	state := ""
	switch {
	case o.end != nil || o.stop != nil || o.reset != nil && !slices.Contains(o.reset.Silent, node.Node): // who is gone is not missed
		node.State = Ended
		return
	case isOf && told.gone && told.expected:
		state = Ended
	case isOf && (told.lost || told.gone):
		state = Lost
	case isOf && told.suspected:
		state, node.Unheard = Suspected, told.unheard
	case isOf && told.leaving:
		state = Leaving
	case node.Pulse == nil && isOf && told.refusal != nil:
		node.State, node.Reason = Silent, "it asked to "+told.refusal.Refused+", and was refused: "+told.refusal.Reason
	case node.Pulse == nil && told != nil && !isOf:
		node.State, node.Reason = Lost, hasGone
	case node.Pulse == nil:
		node.State = Silent
	}
	if state != "" {
		node.State, node.Reason = state, told.reason
	}
}

// StepTime returns how many seconds the last step of the median node took, as heartbeats tell; zero where none does. Nodes
// train in lock-step, and the slowest of them is another one in each step.
func StepTime(nodes []Node) float64 {
	return median(nodes, func(pulse events.Pulse) float64 { return pulse.StepSeconds })
}

// Pace returns how many seconds lie between two completed steps of the median node on average, with what its script does between them:
// so long training takes for each step. Zero where no heartbeat tells.
func Pace(nodes []Node) float64 {
	return median(nodes, func(pulse events.Pulse) float64 { return pulse.PaceSeconds })
}

// median returns that of what heartbeats tell, zero aside.
func median(nodes []Node, of func(events.Pulse) float64) float64 {
	var seconds []float64
	for _, node := range nodes {
		if node.Pulse != nil && of(*node.Pulse) > 0 {
			seconds = append(seconds, of(*node.Pulse))
		}
	}
	if len(seconds) == 0 {
		return 0
	}
	slices.Sort(seconds)
	return seconds[len(seconds)/2]
}
