package plan

import (
	"fmt"
	"slices"

	"github.com/reknit/reknit/events"
)

const tokens = "1 to 64 characters of A-Z a-z 0-9 - _"

// list is one of the file's lists of nodes that change, in the order in which they are told.
type list struct {
	key, kind string
	nodes     []string
}

func (f *file) lists() []list {
	return []list{
		{"failed", events.ChangeFailure, f.Failed},
		{"leaving", events.ChangeLeave, f.Leaving},
		{"joining", events.ChangeJoin, f.Joining},
	}
}

// checkNodes checks ids, speeds, and that each node changes at most once.
func (f *file) checkNodes(d *document) error {
	if !events.Token(f.Cluster) {
		return d.fault("cluster", tokens, fmt.Sprintf("%.80q", f.Cluster))
	}
	if len(f.Nodes) == 0 {
		return d.fault("nodes", "at least one", "none")
	}
	for i, node := range f.Nodes {
		at := fmt.Sprintf("nodes[%d]", i)
		switch {
		case !events.Token(node.Node):
			return d.fault(at+".node", tokens, fmt.Sprintf("%.80q", node.Node))
		case slices.ContainsFunc(f.Nodes[:i], func(other fileNode) bool { return other.Node == node.Node }):
			return d.fault(at+".node", "each node once", node.Node)
		case node.Memory < 1:
			return d.fault(at+".memory", "more than 0", inBytes(int64(node.Memory)))
		case node.Speed != nil && *node.Speed <= 0:
			return d.fault(at+".speed", "more than 0", *node.Speed)
		}
	}
	changed := map[string]bool{}
	for _, list := range f.lists() {
		for i, node := range list.nodes {
			at := fmt.Sprintf("%s[%d]", list.key, i)
			if err := f.known(d, at, node); err != nil {
				return err
			}
			if changed[node] {
				return d.fault(at, "a node that changes once", node)
			}
			changed[node] = true
		}
	}
	return nil
}

// known checks that a field names a node of the file.
func (f *file) known(d *document, field, node string) error {
	if slices.ContainsFunc(f.Nodes, func(known fileNode) bool { return known.Node == node }) {
		return nil
	}
	return d.fault(field, "a node that nodes lists", fmt.Sprintf("%.80q", node))
}

// job checks and builds what is trained.
func (f *file) job(d *document, data []byte) (events.Job, error) {
	job := events.Job{
		Digest: events.Digest(data), GlobalBatch: f.GlobalBatch, MicroBatch: f.MicroBatch,
		Pipelines: events.Bounds(f.Pipelines), Stages: events.Bounds(f.Stages),
	}
	profiles, err := f.Model.profiles(d)
	if err != nil {
		return job, err
	}
	for _, profile := range profiles {
		job.Layers = append(job.Layers, profile.layer())
	}
	switch {
	case f.GlobalBatch < 1:
		return job, d.fault("globalBatch", "at least 1", f.GlobalBatch)
	case f.MicroBatch < 1 || f.GlobalBatch%f.MicroBatch != 0:
		return job, d.fault("microBatch", fmt.Sprintf("a divisor of globalBatch %d", f.GlobalBatch), f.MicroBatch)
	}
	if err := f.Pipelines.check(d, "pipelines"); err != nil {
		return job, err
	}
	return job, f.Stages.check(d, "stages")
}

func (b fileBounds) check(d *document, field string) error {
	if b.Min < 0 || b.Max < 0 || b.Max != 0 && b.Max < b.Min {
		return d.fault(field, "0 <= min <= max, or no max", fmt.Sprintf("%d to %d", b.Min, b.Max))
	}
	return nil
}

// profiles returns one for each layer.
func (m fileModel) profiles(d *document) ([]fileProfile, error) {
	profiles := m.Profiles
	switch {
	case m.Profile == nil && len(m.Profiles) == 0, m.Profile != nil && len(m.Profiles) > 0:
		return nil, d.fault("model", "layers and their profile, or profiles", "neither or both")
	case m.Profile != nil && (m.Layers < 1 || m.Layers > mostLayers):
		return nil, d.fault("model.layers", fmt.Sprintf("1 to %d", mostLayers), m.Layers)
	case m.Profile != nil:
		profiles = slices.Repeat([]fileProfile{*m.Profile}, m.Layers)
	case len(profiles) > mostLayers:
		return nil, d.fault("model.profiles", fmt.Sprintf("1 to %d", mostLayers), len(profiles))
	case m.Layers != 0 && m.Layers != len(profiles):
		return nil, d.fault("model.layers", fmt.Sprintf("the %d of profiles, or nothing", len(profiles)), m.Layers)
	}
	return profiles, nil
}

func (p fileProfile) layer() events.LayerProfile {
	return events.LayerProfile{
		ParameterBytes: int64(p.Parameters), OptimizerBytes: int64(p.Optimizer), GradientBytes: int64(p.Gradients),
		ActivationBytes: int64(p.Activations), OutputBytes: int64(p.Output),
		ForwardSeconds: float64(p.Forward), BackwardSeconds: float64(p.Backward),
	}
}

// current builds the plan in force: it is nil where the file gives none.
func (f *file) current(d *document, q Question) (*events.Plan, error) {
	if len(f.Current) == 0 {
		return nil, nil
	}
	plan := &events.Plan{
		Cluster: f.Cluster, Generation: 1, Policy: "file", LearningRateScale: 1,
		Data: events.Data{GlobalBatch: f.GlobalBatch, MicroBatch: f.MicroBatch},
	}
	for _, node := range q.before {
		plan.Nodes = append(plan.Nodes, node.Member)
	}
	for p, pipeline := range f.Current {
		converted := events.Pipeline{MicroBatches: pipeline.MicroBatches}
		for s, stage := range pipeline.Stages {
			at := fmt.Sprintf("current[%d].stages[%d].node", p, s)
			if err := f.known(d, at, stage.Node); err != nil {
				return nil, err
			}
			if slices.Contains(f.Joining, stage.Node) {
				return nil, d.fault(at, "a node that is there, not one that joins", stage.Node)
			}
			converted.Stages = append(converted.Stages, events.Stage{Node: stage.Node, Layers: events.Layers(stage.Layers)})
		}
		plan.Pipelines = append(plan.Pipelines, converted)
	}
	if err := plan.Validate(); err != nil {
		return nil, d.fault("current", "a plan", err)
	}
	if plan.LayerCount() != len(q.Request.Job.Layers) {
		return nil, d.fault("current", fmt.Sprintf("the %d layers of model", len(q.Request.Job.Layers)), plan.LayerCount())
	}
	return plan, nil
}
