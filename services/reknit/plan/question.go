package plan

import (
	"fmt"
	"slices"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/profile"
	planner "github.com/reknit/reknit/services/planner/machine"
	"github.com/reknit/reknit/services/reknit/cluster"
	"github.com/reknit/reknit/services/reknit/tell"
)

// The planner assumes these values if its environment does not say otherwise.
const (
	usualMinReplicas = 2
	usualSwitchTime  = 50 * time.Millisecond
	usualRestartTime = 50 * time.Millisecond
)

// mostPrice is what a change may cost besides its transfer: one that stops training for longer is no healing, but a wrong unit.
const mostPrice = 24 * time.Hour

// Question is what is to be planned.
type Question struct {
	Request  events.PlanRequest
	Settings planner.Settings
	Assumed  []string // what was taken for granted, for the reader

	before []events.Device // the nodes before the changes
	paces  profile.Paces   // of the plan in force, as told in the log
}

// question checks what a file says and asks for its plan.
func (f *file) question(d *cluster.Document, data []byte) (Question, error) {
	job, err := f.job(d, data)
	if err != nil {
		return Question{}, err
	}
	if err := f.checkNodes(d); err != nil {
		return Question{}, err
	}
	links, usual, err := f.KnownLinks(d)
	if err != nil {
		return Question{}, err
	}
	settings, err := f.settings(d)
	if err != nil {
		return Question{}, err
	}
	q := Question{Settings: settings, before: f.devices(f.Joining), Request: events.PlanRequest{
		Negotiation: "what-if", Cluster: f.Cluster, Generation: 1, Changes: f.changes(),
		Nodes: f.devices(slices.Concat(f.Failed, f.Leaving)), Job: job, Links: links, Usual: usual,
		SecondsBetweenFailures: float64(f.TimeBetweenFailures), SecondsUntilReturn: float64(f.TimeUntilReturn),
	}}
	if f.Links == nil || f.Links.Default == nil {
		q.Assumed = append(q.Assumed, "links that the file leaves out: as the planner assumes")
	}
	if !job.IsTimed() {
		q.Assumed = append(q.Assumed, "times that the file leaves out: a micro-batch takes a second at speed 1")
	}
	current, err := f.current(d, q)
	if current != nil {
		q.Request.Current, q.Request.Generation = current, 2
	}
	return q, err
}

// planBefore is the question with the plan for the nodes before the changes, where there were any and nobody said what they trained.
func (q Question) planBefore() (Question, error) {
	if q.Request.Current != nil || len(q.Request.Changes) == 0 || len(q.before) == 0 {
		return q, nil
	}
	healthy := q
	healthy.Request.Changes, healthy.Request.Nodes = nil, q.before
	answer, err := healthy.answer()
	if err != nil {
		return q, fmt.Errorf("the plan before the changes: %w", err)
	}
	q.Request.Current, q.Request.Generation = &answer.Plan, answer.Plan.Generation+1
	q.Assumed = append(q.Assumed, "the plan before the changes: planned too, for the file gives none")
	return q, nil
}

// holders says who can give what: of a first plan everybody everything, for a model begins as its seed says; later
// those who kept it and have not failed.
func (q *Question) holders() []events.Holder {
	var holders []events.Holder
	if q.Request.Current == nil {
		all := events.Range{End: q.Request.Job.Units()}
		for _, node := range q.Request.Nodes {
			holders = append(holders, events.Holder{Node: node.Node, Units: []events.Range{all}})
		}
		return holders
	}
	for _, member := range q.Request.Current.Nodes {
		if rows := q.Request.Current.UnitsOf(member.Node); len(rows) > 0 && !q.failed(member) {
			holders = append(holders, events.Holder{Node: member.Node, Units: rows})
		}
	}
	return holders
}

// failed reports whether a member of the plan in force holds nothing any more: a new incarnation starts empty.
func (q *Question) failed(member events.Member) bool {
	return slices.ContainsFunc(q.Request.Changes, func(change events.Change) bool {
		return change.Kind == events.ChangeFailure && change.Node == member.Node
	}) || slices.ContainsFunc(q.Request.Nodes, func(device events.Device) bool {
		return device.Node == member.Node && device.Incarnation != member.Incarnation
	})
}

func (f *file) changes() []events.Change {
	var changes []events.Change
	for _, list := range f.lists() {
		for _, node := range list.nodes {
			changes = append(changes, events.Change{Kind: list.kind, Node: node, Cause: "file"})
		}
	}
	return changes
}

// devices are the file's nodes without some.
func (f *file) devices(without []string) []events.Device {
	var devices []events.Device
	for _, node := range f.Nodes {
		if slices.Contains(without, node.Node) {
			continue
		}
		device := events.Device{Member: member(node.Node), MemoryBytes: int64(node.Memory), SpeedFactor: 1}
		device.Site = node.Site
		if node.Speed != nil {
			device.SpeedFactor = *node.Speed
		}
		devices = append(devices, device)
	}
	return devices
}

// member is a node that was started once: a file knows no processes.
func member(node string) events.Member { return events.Member{Node: node, Incarnation: "1"} }

func (f *file) settings(d *cluster.Document) (planner.Settings, error) {
	settings := planner.Settings{
		Cluster: f.Cluster, MinReplicas: usualMinReplicas, SwitchSeconds: usualSwitchTime.Seconds(),
		RestartSeconds: usualRestartTime.Seconds(),
	}
	if f.TimeBetweenFailures <= 0 {
		return settings, d.Fault("timeBetweenFailures", "a time above 0", tell.Seconds(float64(f.TimeBetweenFailures)))
	}
	if f.MinReplicas != nil {
		settings.MinReplicas = *f.MinReplicas
	}
	if settings.MinReplicas < 1 {
		return settings, d.Fault("minReplicas", "at least 1", settings.MinReplicas)
	}
	if f.Slowdown != nil {
		settings.Slowdown = *f.Slowdown
		if !(settings.Slowdown >= 1) {
			return settings, d.Fault("slowdown", "a number of at least 1", settings.Slowdown)
		}
	}
	for _, price := range []struct {
		key  string
		told *cluster.Span
		into *float64
	}{{"switchTime", f.SwitchTime, &settings.SwitchSeconds}, {"restart", f.Restart, &settings.RestartSeconds}} {
		if price.told == nil {
			continue
		}
		if *price.into = float64(*price.told); *price.into > mostPrice.Seconds() {
			return settings, d.Fault(price.key, "a time of at most 24h", tell.Seconds(*price.into))
		}
	}
	return settings, nil
}
