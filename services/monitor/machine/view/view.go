// Package view makes of what a monitor hears what a person sees of a cluster: parts, each a small document under a key of its own. A viewer
// gets those that changed.
package view

import (
	"fmt"
	"slices"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine/changes"
	"github.com/reknit/reknit/services/monitor/machine/overlay"
)

const (
	// MostChanges is how many changes are shown, the newest.
	MostChanges = 50
	// mostDrawn is up to how many nodes each link is drawn. Groups of nodes and the links between them are drawn if
	// there are more.
	mostDrawn = 32
	// mostNames is how many nodes, links or receivers a part names where it sums up the others.
	mostNames = 24
	// mostPulses is of how many nodes heartbeats are remembered.
	mostPulses = 1 << 14
	// silentAfter is how old a heartbeat may be, or the view itself before it expects one: six periods.
	silentAfter = 3 * time.Second
	// forgottenAfter is for how long the last heartbeat of a node is remembered.
	forgottenAfter = time.Minute
)

// View is what is seen of one cluster.
type View struct {
	cluster  string
	overlay  *overlay.Overlay
	names    *overlay.Names
	record   *changes.Record
	pulses   map[string]beat
	told     map[uint64]Change // by generation
	progress progress
	resets   changes.Resets
	began    time.Time       // heartbeats were heard from then on
	news     bool            // of changes, since the last look
	counted  map[uint64]bool // by generation: it was among the figures as done; nil before the first
	differ   map[int]bool    // units whose copies differ under the plan in force, and nobody can tell which is right
}

// beat is a heartbeat and when it came.
type beat struct {
	events.Pulse
	at time.Time
}

// New returns a view of a cluster, for the events behind the commit of a generation; began is when it begins to hear heartbeats.
func New(cluster string, committed uint64, began time.Time) *View {
	return &View{
		cluster: cluster, overlay: overlay.New(), names: overlay.NewNames(), record: changes.NewRecord(committed), pulses: map[string]beat{},
		told: map[uint64]Change{}, began: began, differ: map[int]bool{},
	}
}

// Kinds are the events of the log that are to be taken. Committed plans are of another stream, and are to be taken as well.
func Kinds() []events.Kind {
	all := slices.Concat(changes.Kinds(), overlay.NodeKinds, overlay.LinkKinds, overlay.SnapshotKinds, []events.Kind{events.PlanRequested})
	slices.Sort(all)
	return slices.Compact(all)
}

// Take hears an event.
func (v *View) Take(event events.Event) {
	v.overlay.Take(event)
	v.names.Take(event)
	v.record.Take(event)
	v.news = true
	v.compare(event)
	if v.resets.Take(event) != nil {
		v.progress = progress{marks: v.progress.marks}
	}
	if committed := v.record.Committed(); event.Kind == events.Committed && committed > MostChanges {
		v.record.Forget(committed - MostChanges)
	}
}

// compare hears that copies differ. Under a new plan they are compared again.
func (v *View) compare(event events.Event) {
	switch event.Kind {
	case events.Committed:
		clear(v.differ)
	case events.ReplicaDiverged:
		if told, err := events.Open[events.Divergence](event); err == nil && told.Generation == v.record.Committed() {
			delete(v.differ, told.Unit)
			if told.Digest == "" {
				v.differ[told.Unit] = true
			}
		}
	}
}

// Pulse hears a heartbeat.
func (v *View) Pulse(pulse events.Pulse, at time.Time) {
	if _, known := v.pulses[pulse.Node]; known || len(v.pulses) < mostPulses {
		v.pulses[pulse.Node] = beat{pulse, at}
	}
	if plan, _ := v.plan(); plan != nil { // who has no place, or begins only, stands at another step
		if _, placed := plan.Holds(pulse.Node); placed && pulse.Step > 0 {
			v.progress.hear(pulse, at)
		}
	}
}

// plan returns the one that counts and when it was committed; nil where there is none, or training begins anew.
func (v *View) plan() (*events.Plan, time.Time) {
	if v.overlay.Reset() != nil {
		return nil, time.Time{}
	}
	return v.overlay.Plan()
}

// Parts returns all that there is to see, by key. A part that did not change is as it was. O(n log n) of the nodes and links.
func (v *View) Parts(now time.Time) map[string]any {
	parts := map[string]any{}
	nodes := v.nodes(now)
	plan, committed := v.plan()
	if plan != nil {
		parts["plan"] = planOf(plan, committed)
		parts["layers"] = CoverageOf(plan, alive(nodes))
	}
	for _, node := range nodes {
		parts["node/"+node.Node] = nodeOf(node, len(nodes) <= mostDrawn)
	}
	for key, shown := range v.names.All() {
		parts["name/"+key] = shown
	}
	links, usual := v.overlay.Links()
	parts["links"] = linksOf(nodes, links, usual)
	for generation, change := range v.changes(now) {
		parts[fmt.Sprint("change/", generation)] = change
	}
	v.progress.look(plan, now)
	for minute, points := range v.progress.minutes() {
		parts[fmt.Sprint("points/", minute)] = points
	}
	parts["now"] = v.status(nodes, plan, now)
	return parts
}

// nodes lists the nodes. A node does not count as silent before anybody could be heard.
func (v *View) nodes(now time.Time) []overlay.Node {
	heard := map[string]events.Pulse{}
	for node, beat := range v.pulses {
		if now.Sub(beat.at) < silentAfter {
			heard[node] = beat.Pulse
		} else if now.Sub(beat.at) > forgottenAfter {
			delete(v.pulses, node)
		}
	}
	nodes := v.overlay.Nodes(heard)
	for i := range nodes {
		if nodes[i].State == overlay.Silent {
			nodes[i].Unheard = v.pulses[nodes[i].Node].at
		}
		if nodes[i].State == overlay.Silent && now.Sub(v.began) < silentAfter {
			nodes[i].State = overlay.Spare
			if nodes[i].Layers != nil {
				nodes[i].State = overlay.Training
			}
		}
	}
	return nodes
}

// alive are the nodes whose layers count.
func alive(nodes []overlay.Node) map[string]bool {
	living := map[string]bool{}
	for _, node := range nodes {
		living[node.Node] = node.State != overlay.Lost
	}
	return living
}

// Node is a node for readers.
type Node struct {
	State       string   `json:"state"`
	Reason      string   `json:"reason,omitempty"`
	Site        string   `json:"site,omitempty"`
	Step        uint64   `json:"step,omitempty"`        // left out with many nodes: they would change all the time
	StepSeconds float64  `json:"stepSeconds,omitempty"` // the same
	Speed       float64  `json:"speed,omitempty"`
	Memory      [2]int64 `json:"memory,omitzero"`  // that the plan fills, of what there is
	Joined      int64    `json:"joined,omitempty"` // when it asked for its place, in milliseconds since 1970
}

func nodeOf(node overlay.Node, paced bool) Node {
	told := Node{
		State: node.State, Reason: node.Reason, Site: node.Site, Speed: node.SpeedFactor,
		Memory: [2]int64{node.PeakBytes, node.MemoryBytes},
	}
	if !node.Joined.IsZero() {
		told.Joined = node.Joined.UnixMilli()
	}
	if node.Pulse != nil && paced {
		told.StepSeconds = node.Pulse.StepSeconds
	}
	if paced || node.Pulse == nil {
		told.Step = node.Step
	}
	return told
}

// Plan is the plan in force for readers.
type Plan struct {
	Generation uint64           `json:"generation"`
	Committed  int64            `json:"committed"` // milliseconds since 1970
	Policy     string           `json:"policy"`
	Kind       string           `json:"kind,omitempty"`
	Shape      string           `json:"shape"`
	Layers     int              `json:"layers"`
	Pipelines  []Pipeline       `json:"pipelines"`
	Reroutes   []events.Reroute `json:"reroutes,omitempty"`
	Predicted  Predicted        `json:"predicted"`
}

// Predicted is what a planner expected of its plan.
type Predicted struct {
	StepSeconds      float64 `json:"stepSeconds"`
	LowerBound       float64 `json:"lowerBound,omitempty"`
	SamplesPerSecond float64 `json:"samplesPerSecond"`
	Unmeasured       bool    `json:"unmeasured,omitempty"` // they only compare plans
}

func predictedOf(predicted events.Predicted) Predicted {
	return Predicted{predicted.StepSeconds, predicted.StepSecondsLowerBound, predicted.SamplesPerSecond, predicted.Unmeasured}
}

// Pipeline is a pipeline for readers: of each stage its node, and the end of its layers.
type Pipeline struct {
	MicroBatches int      `json:"microBatches"`
	Partitions   []int    `json:"partitions,omitempty"`
	Nodes        []string `json:"nodes"`
	Ends         []int    `json:"ends"`
}

func planOf(plan *events.Plan, committed time.Time) Plan {
	told := Plan{
		Generation: plan.Generation, Committed: committed.UnixMilli(), Policy: plan.Policy, Kind: plan.Kind, Shape: plan.Shape(),
		Layers: plan.LayerCount(), Reroutes: plan.Reroutes, Predicted: predictedOf(plan.Predicted),
	}
	for _, pipeline := range plan.Pipelines {
		one := Pipeline{MicroBatches: pipeline.MicroBatches, Partitions: pipeline.Partitions}
		for _, stage := range pipeline.Stages {
			one.Nodes, one.Ends = append(one.Nodes, stage.Node), append(one.Ends, stage.Layers.End)
		}
		told.Pipelines = append(told.Pipelines, one)
	}
	return told
}
