// Package overlay makes the nodes and links of a cluster of what its log and its heartbeats tell.
package overlay

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine/changes"
)

// Overlay takes a log, and knows who is there now, where, and how good the links are.
type Overlay struct {
	plan     *events.Plan
	planned  time.Time        // when the plan was committed
	end      *changes.End     // of the job; nil: it goes on
	stop     *changes.Stop    // since the last commit; nil: training was not stopped
	reset    *events.JobReset // since the last commit; nil: nobody had training begin anew
	resets   changes.Resets
	devices  map[string]events.Device
	stepless bool   // as in Stepless
	steps    uint64 // of the job; zero: not known, or it has no end
	told     map[string]*told
	paces    map[string]events.Pace // under the plan, by the node that told
	before   map[string]passes      // under the plans before, by the node that told last
	links    map[direction]*Link
	usual    *events.Usual

	snapshots map[string]*Snapshot // by tier
	folders   map[string]string    // of those on the nodes' own disks, by node
	halted    uint64               // step behind which training stopped last, in completed ones; zero: it never did
	delays    map[string]Delay     // by node
}

type direction struct{ from, to string }

// New returns an overlay of which nothing is known.
func New() *Overlay {
	return &Overlay{devices: map[string]events.Device{}, told: map[string]*told{}, links: map[direction]*Link{},
		paces: map[string]events.Pace{}, before: map[string]passes{}, snapshots: map[string]*Snapshot{},
		folders: map[string]string{}, delays: map[string]Delay{}}
}

// NodeKinds are the events that change a node's state or tell its pace, LinkKinds those that change a link.
var (
	NodeKinds = []events.Kind{
		events.JoinRequested, events.LeaveRequested, events.MembershipRefused, events.NodeSuspected, events.NodeCleared,
		events.StepDelayed, events.JoinDelayed,
		events.NodeLost, events.NodeExited, events.TrainingCompleted, events.TrainingStopped, events.TrainingReset, events.PlanMeasured,
	}
	LinkKinds = []events.Kind{
		events.LinkMeasured, events.LinkLost, events.LinkRestored, events.ConnectRequested, events.DisconnectRequested,
	}
)

// Take hears an event: one of these kinds, a request for a plan, which lists devices and links, or a committed plan. An event that its
// schema refuses says nothing.
func (o *Overlay) Take(event events.Event) {
	switch {
	case event.Kind == events.PlanCommitted:
		if plan, err := events.Open[events.Plan](event); err == nil {
			o.commit(plan, event.Logged)
		}
	case event.Kind == events.PlanRequested:
		if request, err := events.Open[events.PlanRequest](event); err == nil {
			o.request(request)
		}
	case event.Kind == events.TrainingCompleted:
		if o.end = changes.EndOf(event); o.end != nil {
			o.endAll(o.end.At)
		}
	case event.Kind == events.TrainingStopped:
		if stop := changes.StopOf(event); stop != nil {
			o.haltSnapshots(stop.Step)
			o.endAll(stop.At)
			o.halt(stop)
		}
	case event.Kind == events.TrainingReset:
		o.beginAnew(event)
	case event.Kind == events.PlanMeasured:
		o.pace(event)
	case event.Kind == events.StepDelayed:
		o.takeDelay(event)
	case slices.Contains(NodeKinds, event.Kind):
		if o.told[event.Subject] == nil {
			o.told[event.Subject] = &told{}
		}
		o.told[event.Subject].take(event)
		if event.Kind == events.JoinRequested || event.Kind == events.NodeLost || event.Kind == events.NodeExited {
			o.endsFailing(event.Subject)
		}
		if join := o.told[event.Subject].join; event.Kind == events.JoinRequested && join != nil {
			o.takeFolder(*join)
		}
	case slices.Contains(LinkKinds, event.Kind):
		o.takeLink(event)
	case slices.Contains(SnapshotKinds, event.Kind):
		o.takeSnapshot(event)
	}
}

// commit follows a plan. Nothing needs to be known any more of nodes that went and are not in it.
func (o *Overlay) commit(plan events.Plan, at time.Time) {
	o.remember(&plan)
	o.plan, o.planned, o.stop, o.reset = &plan, at, nil, nil
	clear(o.paces)
	o.forgetDelays()
	members := map[string]bool{}
	for _, member := range plan.Nodes {
		members[member.Node] = true
	}
	maps.DeleteFunc(o.folders, func(node, _ string) bool {
		told := o.told[node]
		return !members[node] && (told == nil || told.gone || told.leaving)
	})
	maps.DeleteFunc(o.told, func(node string, told *told) bool { return (told.gone || told.leaving) && !members[node] })
	for _, tier := range o.snapshots {
		maps.DeleteFunc(tier.failing, func(node string, _ Failing) bool { return !members[node] })
	}
}

// request takes what a planner was told, in place of what was known.
func (o *Overlay) request(request events.PlanRequest) {
	clear(o.devices)
	for _, device := range request.Nodes {
		o.devices[device.Node] = device
	}
	job := request.Job
	o.stepless = job.Unchanged()
	o.steps = job.Steps
	clear(o.links)
	for _, link := range request.Links {
		*o.of(link.From, link.To) = Link{Link: link}
	}
	o.usual = request.Usual
}

// Has reports whether the last request for a plan was for a node.
func (o *Overlay) Has(node string) bool {
	_, known := o.devices[node]
	return known
}

// endAll takes that all processes ended which had asked for a place by then: the job is complete, or stopped. It is told again each day.
func (o *Overlay) endAll(at time.Time) {
	for node, told := range o.told {
		if !told.joined.After(at) {
			told.gone = true
			o.endsFailing(node)
		}
	}
}

// halt takes that training has stopped, if it was under the plan in force. Nobody who took part is missed.
func (o *Overlay) halt(stop *changes.Stop) {
	if o.plan == nil || stop.Generation != o.plan.Generation || o.stop != nil {
		return
	}
	o.stop = stop
	clear(o.told)
}

// Stop returns that of training, since the last commit; nil where it was not stopped.
func (o *Overlay) Stop() *changes.Stop { return o.stop }

// End returns that of the job; nil where it goes on.
func (o *Overlay) End() *changes.End { return o.end }

// Refusal returns the last refusal to a node of which nothing newer is known; nil where there is none.
func (o *Overlay) Refusal() (last *changes.Refusal) {
	for _, told := range o.told {
		if told.refusal != nil && (last == nil || told.refusal.At.After(last.At)) {
			last = told.refusal
		}
	}
	return last
}

// Stepless reports whether nobody knows the steps of the job, because scripts run in it that know nothing of their agents
// (--unchanged): the state that such agents have in their place is a byte.
func (o *Overlay) Stepless() bool { return o.stepless }

// Course returns how many steps the job has, and how long those behind a step take yet where each takes so many seconds; zero: not known.
func (o *Overlay) Course(step uint64, stepSeconds float64) (steps uint64, left time.Duration) {
	if o.steps <= step || o.stepless {
		return o.steps, 0
	}
	seconds := float64(o.steps-step) * stepSeconds
	return o.steps, time.Duration(min(seconds, mostLeft.Seconds()) * float64(time.Second))
}

const mostLeft = 100 * 365 * 24 * time.Hour // of what fits a duration

// SaysCourse tells how far a job is, behind "step 95": " of 2000, 5 %, 27 min left"; empty where its end is not known.
func SaysCourse(step, steps uint64, left time.Duration) string {
	if steps == 0 {
		return ""
	}
	says := fmt.Sprintf(" of %d, %.0f %%", steps, math.Floor(100*float64(min(step, steps))/float64(steps)))
	switch {
	case left == 0:
		return says
	case left < 2*time.Minute:
		return says + fmt.Sprintf(", %.0f s left", left.Seconds())
	case left < 2*time.Hour:
		return says + fmt.Sprintf(", %.0f min left", left.Minutes())
	case left < 48*time.Hour:
		return says + fmt.Sprintf(", %.0f h left", left.Hours())
	}
	return says + fmt.Sprintf(", %.0f days left", left.Hours()/24)
}

// Plan returns the plan in force and when it was committed; nil where there is none.
func (o *Overlay) Plan() (*events.Plan, time.Time) { return o.plan, o.planned }

// Nodes lists the members of the plan and those who want to be, in the order of their names; pulses are the last heartbeats. A member that
// is not heard, and asked for its place again, is listed as who asks for it. O(n log n).
func (o *Overlay) Nodes(pulses map[string]events.Pulse) (all []Node) {
	members, at := map[string]string{}, map[string]int{} // their incarnations, and where they are listed
	if o.plan != nil {
		places := placesOf(*o.plan)
		for _, member := range o.plan.Nodes {
			if o.reset != nil && !slices.Contains(o.reset.Silent, member.Node) {
				continue // nobody waits for it any more
			}
			members[member.Node], at[member.Node] = member.Incarnation, len(all)
			all = append(all, o.member(member, places, pulses))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.told)) {
		told := o.told[name]
		if told.join == nil || told.leaving || members[name] == told.join.Incarnation {
			continue
		}
		pulse, heard := pulses[name]
		runsOn := told.lost && o.end == nil && heard && pulse.Incarnation == told.join.Incarnation // as an agent does whose trainer hangs
		if told.gone && !runsOn {
			continue
		}
		node := Node{
			Node: name, Name: told.join.Name, State: Joining, Site: told.join.Site, Address: told.join.Address, Incarnation: told.join.Incarnation,
			MemoryBytes: told.join.MemoryBytes, Joined: told.joined,
		}
		node.Until, node.Reason = told.waits()
		switch {
		case runsOn:
			node.State, node.Reason, node.Step = Lost, told.reason, pulse.Step
		case heard:
			node.Pulse, node.Step = &pulse, pulse.Step
		}
		if i, was := at[name]; was && all[i].Pulse == nil {
			all[i] = node.takes(all[i], *told.join)
		} else {
			all = append(all, node)
		}
	}
	all = append(all, starting(all, pulses)...)
	slices.SortFunc(all, func(a, b Node) int { return cmp.Or(len(a.Node)-len(b.Node), cmp.Compare(a.Node, b.Node)) }) // n2 before n10
	return all
}

// AnyWaits reports whether any of some nodes waits for a place, or is about to ask for one.
func AnyWaits(nodes []Node) bool {
	return slices.ContainsFunc(nodes, func(node Node) bool { return node.State == Joining || node.State == Starting })
}

// starting lists the nodes whose heartbeats tell that their scripts run and have not asked for a place. They are in no log.
func starting(listed []Node, pulses map[string]events.Pulse) (nodes []Node) {
	known := map[string]bool{}
	for _, node := range listed {
		known[node.Node] = true
	}
	for name, pulse := range pulses {
		if pulse.Phase == events.PhaseStarting && !known[name] {
			nodes = append(nodes, Node{
				Node: name, State: Starting, Reason: "its script runs, and has given no state yet", Incarnation: pulse.Incarnation,
			})
		}
	}
	return nodes
}
