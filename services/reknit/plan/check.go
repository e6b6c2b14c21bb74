package plan

import (
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/cluster"
)

// file is a cluster's file of which a plan is asked.
type file struct{ cluster.File }

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

// checkNodes checks the nodes, and that each node changes at most once.
func (f *file) checkNodes(d *cluster.Document) error {
	if !events.Token(f.Cluster) {
		return d.Fault("cluster", cluster.Tokens, fmt.Sprintf("%.80q", f.Cluster))
	}
	if len(f.Nodes) == 0 {
		return d.Fault("nodes", "at least one", "none")
	}
	if err := f.CheckNodes(d); err != nil {
		return err
	}
	changed := map[string]bool{}
	for _, list := range f.lists() {
		for i, node := range list.nodes {
			at := fmt.Sprintf("%s[%d]", list.key, i)
			if err := f.Known(d, at, node); err != nil {
				return err
			}
			if changed[node] {
				return d.Fault(at, "a node that changes once", node)
			}
			changed[node] = true
		}
	}
	return nil
}

// job checks and builds what is trained.
func (f *file) job(d *cluster.Document, data []byte) (events.Job, error) {
	job := events.Job{
		Digest: events.Digest(data), GlobalBatch: f.GlobalBatch, MicroBatch: f.MicroBatch,
		Pipelines: events.Bounds(f.Pipelines), Stages: events.Bounds(f.Stages),
		OptimizerPartitions: f.Model.OptimizerPartitions, Kind: f.Kind, Replicas: f.Replicas,
	}
	for _, run := range f.Tied {
		job.Tied = append(job.Tied, events.Range(run))
	}
	if f.BatchRule != nil {
		rule := events.BatchRule(*f.BatchRule)
		job.BatchRule = &rule
	}
	layers, err := f.Model.EveryLayer(d)
	if err != nil {
		return job, err
	}
	job.Layers = layers
	switch {
	case f.GlobalBatch < 1:
		return job, d.Fault("globalBatch", "at least 1", f.GlobalBatch)
	case f.MicroBatch < 1 || f.GlobalBatch%f.MicroBatch != 0:
		return job, d.Fault("microBatch", fmt.Sprintf("a divisor of globalBatch %d", f.GlobalBatch), f.MicroBatch)
	}
	if err := check(f.Pipelines, d, "pipelines"); err != nil {
		return job, err
	}
	if err := check(f.Stages, d, "stages"); err != nil {
		return job, err
	}
	var wrong *events.FieldError
	if errors.As(job.Validate(), &wrong) {
		return job, d.Fault(wrong.Field, wrong.Expected, wrong.Got)
	}
	return job, nil
}

func check(b cluster.Bounds, d *cluster.Document, field string) error {
	if b.Min < 0 || b.Max < 0 || b.Max != 0 && b.Max < b.Min {
		return d.Fault(field, "0 <= min <= max, or no max", fmt.Sprintf("%d to %d", b.Min, b.Max))
	}
	return nil
}

// current builds the plan in force: it is nil where the file gives none.
func (f *file) current(d *cluster.Document, q Question) (*events.Plan, error) {
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
		if want := q.Request.Job.OptimizerPartitions; want > 0 && pipeline.Partitions == nil {
			return nil, d.Fault(fmt.Sprintf("current[%d].partitions", p),
				fmt.Sprintf("those that it keeps of the %d optimizerPartitions, [] for none", want), "nothing")
		}
		converted := events.Pipeline{MicroBatches: pipeline.MicroBatches, Partitions: pipeline.Partitions}
		for s, stage := range pipeline.Stages {
			at := fmt.Sprintf("current[%d].stages[%d].node", p, s)
			if err := f.Known(d, at, stage.Node); err != nil {
				return nil, err
			}
			if slices.Contains(f.Joining, stage.Node) {
				return nil, d.Fault(at, "a node that is there, not one that joins", stage.Node)
			}
			converted.Stages = append(converted.Stages,
				events.Stage{Node: stage.Node, Layers: events.Range(stage.Layers)})
		}
		plan.Pipelines = append(plan.Pipelines, converted)
	}
	plan.Data.GlobalBatch, plan.LearningRateScale = q.Request.Job.BatchOf(len(plan.Nodes))
	if err := plan.Validate(); err != nil {
		return nil, ofCurrent(d, err)
	}
	if plan.LayerCount() != len(q.Request.Job.Layers) {
		return nil, d.Fault("current", fmt.Sprintf("the %d layers of model", len(q.Request.Job.Layers)),
			plan.LayerCount())
	}
	if want := q.Request.Job.OptimizerPartitions; plan.Partitions() != want {
		return nil, d.Fault("current", fmt.Sprintf("pipelines that keep the %d optimizerPartitions of model", want),
			plan.Partitions())
	}
	return plan, nil
}

// brokenPlan is how a plan says what is wrong with its pipelines: where, what was expected, and what is there.
var brokenPlan = regexp.MustCompile(`^pipelines: (?:((?:\[\d+\]|\.\w+)+): )?expected (.*), got (.*)$`)

// ofCurrent tells what is wrong with a plan in force, in the words of the file.
func ofCurrent(d *cluster.Document, err error) error {
	if broken, is := errors.AsType[*events.RuleError](err); is {
		err = broken.Err
	}
	if parts := brokenPlan.FindStringSubmatch(err.Error()); parts != nil {
		return d.Fault("current"+parts[1], parts[2], parts[3])
	}
	return d.Fault("current", "a plan", err)
}
