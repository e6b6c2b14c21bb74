package machine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/planner/estimate"
	"github.com/reknit/reknit/services/planner/policy"
	"github.com/reknit/reknit/services/planner/search"
)

// dearTransfers is what a pair without a direct link costs, in usual transfers: it shares the hub with everybody, there
// and back.
const dearTransfers = 10

// Situation turns a request into what policies look at.
func (settings Settings) Situation(request events.PlanRequest) policy.Situation {
	job := request.Job
	globalBatch, _ := job.BatchOf(len(request.Nodes))
	s := policy.Situation{
		Kind: kinds[job.Kind], MicroBatches: globalBatch / job.MicroBatch, GlobalBatch: globalBatch,
		DataParallel: limits(job.Pipelines), PipelineLength: limits(job.Stages), MinReplicas: settings.MinReplicas,
		SecondsBetweenFailures: request.SecondsBetweenFailures, SecondsUntilReturn: request.SecondsUntilReturn,
		SwitchSeconds: settings.SwitchSeconds, RestartSeconds: settings.RestartSeconds, Partitions: job.OptimizerPartitions,
		Find:     settings.Find,
		Slowdown: settings.Slowdown, KeepsAll: job.Data == events.LocalData || isUnmeasured(request),
	}
	if measured := request.SwitchSeconds; measured > 0 {
		s.SwitchSeconds = measured
	}
	if measured := request.RestartSeconds; measured > 0 {
		s.RestartSeconds = measured
	}
	nodes := bySite(request.Nodes)
	for _, node := range nodes {
		s.Nodes = append(s.Nodes, node.Node)
		s.MemoryBytes = append(s.MemoryBytes, node.MemoryBytes)
	}
	s.PreCopies = true
	for _, node := range request.Nodes {
		s.StateCopies, s.PreCopies = max(s.StateCopies, node.StateCopies), s.PreCopies && node.PreCopies
	}
	slowest := slowestFactor(request.Nodes)
	s.Speed = speeds(nodes, slowest)
	if s.Kind == policy.DataParallel {
		s.PipelineLength.Most = 1
	}
	tied, profiles := runsOf(job), profiles(job)
	for run := range tied[1:] {
		layer := together(profiles[tied[run]:tied[run+1]])
		s.Layers = append(s.Layers, estimate.Layer{
			ForwardSeconds: layer.ForwardSeconds / slowest, BackwardSeconds: layer.BackwardSeconds / slowest,
			StaticBytes:     s.WithCopies(layer.StateBytes()) + layer.GradientBytes,
			ActivationBytes: layer.ActivationBytes,
		})
		s.StateBytes = append(s.StateBytes, layer.StateBytes())
		s.GradientBytes = append(s.GradientBytes, layer.GradientBytes)
		s.OptimizerBytes = append(s.OptimizerBytes, layer.OptimizerBytes)
	}
	if request.Current != nil {
		s.Current, _ = pipelines(tied, request.Current.Pipelines) // one that cuts tied layers is not of this job
		s.Empty, s.Relayed = empty(request.Nodes, *request.Current), len(request.Current.Relays) > 0
	}
	s.Network = network(request, nodes)
	learnt := lessonOf(s, request)
	s.Correction, s.OverheadSeconds, s.OwnSeconds = learnt.times, learnt.overheadSeconds, learnt.ownSeconds
	return s
}

// mostCorrection is the most that steps are believed to take of what the model says, and one over it the least: one that is
// further off has another reason than a model has.
const mostCorrection = 10

// lesson is what the steps of plans before teach about those of the next one.
type lesson struct {
	times           float64 // as long as the model says do passes take
	overheadSeconds float64 // that a step takes beyond that
	ownSeconds      float64 // of these, that it takes though one node trains alone
}

// lessonOf tells how many times as long as the model says passes of the plan in force take, with what is known of its nodes and
// layers now, and the seconds that its steps take beyond that. A step counts as passes whole if nobody measured its passes, or if
// it takes less than its passes should. A node that trains alone waits for nobody: what its steps take beyond passes is its own, to
// update the model say, and is not divided by how many train next. Earlier lessons count on if nothing was measured under the plan, or
// its nodes stand in for lost ones. If a node is lost, no more is expected than steps took at their least: a trainer whose link had
// become slow left, and the two without it took 247 ms where 2 s were predicted.
func lessonOf(s policy.Situation, request events.PlanRequest) lesson {
	current := request.Current
	if current == nil || isUnmeasured(request) {
		return lesson{times: 1}
	}
	model, before := s.CurrentSeconds(), current.Predicted
	if request.CurrentStepSeconds == 0 || len(current.Reroutes) > 0 || model == 0 {
		return lesson{cmp.Or(before.Correction, 1), before.OverheadSeconds, before.OwnSeconds}
	}
	ratio := request.CurrentComputeRatio
	step := believed(request.CurrentStepSeconds / model)
	passes := min(step, max(cmp.Or(ratio, step), 1.0/mostCorrection))
	if least := believed(cmp.Or(request.CurrentLeastSeconds, request.CurrentStepSeconds) / model); request.LosesNode() && least < step {
		if ratio == 0 {
			passes = min(passes, max(1, least)) // a model that knows by now of what is slow says more than the least
		}
		step = max(passes, least)
	}
	learnt := lesson{times: passes, overheadSeconds: (step - passes) * model}
	learnt.ownSeconds = learnt.overheadSeconds
	if !policy.IsAlone(s.Current) {
		learnt.ownSeconds = min(learnt.ownSeconds, before.OwnSeconds)
	}
	return learnt
}

// believed is a ratio of steps as far as it may be the model's fault.
func believed(ratio float64) float64 { return min(max(ratio, 1.0/mostCorrection), mostCorrection) }

// bySite returns the nodes in the order in which equal ones that hold nothing take places. The stages of a pipeline follow each
// other, and so stand at one site where they can, however little is known of the links.
func bySite(nodes []events.Device) []events.Device {
	return slices.SortedStableFunc(slices.Values(nodes), func(a, b events.Device) int { return cmp.Compare(a.Site, b.Site) })
}

// slowestFactor is the speed of the slowest node: in a synchronous step all wait for it.
func slowestFactor(nodes []events.Device) float64 {
	slowest := 0.0
	for _, node := range nodes {
		if node.SpeedFactor > 0 && (slowest == 0 || node.SpeedFactor < slowest) {
			slowest = node.SpeedFactor
		}
	}
	if slowest == 0 {
		return 1
	}
	return slowest
}

func limits(bounds events.Bounds) search.Limits {
	return search.Limits{Least: bounds.Min, Most: bounds.Max}
}

// pipelines reads a plan's pipelines as policies see them. It fails where a stage cuts layers that are tied.
func pipelines(of runs, planned []events.Pipeline) ([]policy.Pipeline, error) {
	var list []policy.Pipeline
	for p, pipeline := range planned {
		stages := make([]policy.Stage, len(pipeline.Stages))
		for st, stage := range pipeline.Stages {
			layers, err := of.of(stage.Layers)
			if err != nil {
				return nil, fmt.Errorf("pipelines[%d].stages[%d]: %w", p, st, err)
			}
			stages[st] = policy.Stage{Node: stage.Node, Layers: layers}
		}
		list = append(list,
			policy.Pipeline{MicroBatches: pipeline.MicroBatches, Stages: stages, Partitions: pipeline.Partitions})
	}
	return list, nil
}

// kinds are how policies name what a job says.
var kinds = map[string]policy.Kind{events.DataParallel: policy.DataParallel, events.Sharded: policy.Sharded}

// profiles are the job's layers. A micro-batch takes a second at a node whose speed is not known, two thirds of it
// backward, if the job leaves all seconds out: only how nodes compare matters until they have told their speed.
func profiles(job events.Job) []events.LayerProfile {
	if job.IsTimed() {
		return job.Layers
	}
	layers := slices.Clone(job.Layers)
	for i := range layers {
		layers[i].ForwardSeconds, layers[i].BackwardSeconds = 1/float64(3*len(layers)), 2/float64(3*len(layers))
	}
	return layers
}

// isUnmeasured reports whether nothing tells how long a step of the job takes: a node whose speed nobody measured has 1.
func isUnmeasured(request events.PlanRequest) bool {
	return !request.Job.IsTimed() &&
		!slices.ContainsFunc(request.Nodes, func(node events.Device) bool { return node.SpeedFactor != 1 })
}

// together is what some layers cost as one.
func together(layers []events.LayerProfile) events.LayerProfile {
	var sum events.LayerProfile
	for _, layer := range layers {
		sum.ParameterBytes += layer.ParameterBytes
		sum.OptimizerBytes += layer.OptimizerBytes
		sum.GradientBytes += layer.GradientBytes
		sum.ActivationBytes += layer.ActivationBytes
		sum.ForwardSeconds += layer.ForwardSeconds
		sum.BackwardSeconds += layer.BackwardSeconds
	}
	return sum
}

// empty returns the nodes that were no members of the plan in force as the processes they are now: a new incarnation
// holds nothing any more.
func empty(nodes []events.Device, plan events.Plan) []string {
	var names []string
	next := 0 // both lists are in one order, most of the time
	for _, node := range nodes {
		named := func(member events.Member) bool { return member.Node == node.Node }
		at := slices.IndexFunc(plan.Nodes[next:], named) + next
		if at < next {
			at = slices.IndexFunc(plan.Nodes, named)
		}
		if at < 0 || plan.Nodes[at].Incarnation != node.Incarnation {
			names = append(names, node.Node)
		}
		next = max(next, at+1)
	}
	return names
}

// proposal writes the best candidate as a plan, with all that were considered and what its seconds were multiplied by beside it.
func proposal(request events.PlanRequest, s policy.Situation, best policy.Candidate, considered []events.Candidate) *events.Proposal {
	job := request.Job
	globalBatch, scale := job.BatchOf(len(request.Nodes))
	plan := events.Plan{
		Cluster: request.Cluster, Generation: request.Generation, Policy: best.Policy,
		Kind: job.Kind, Replicas: job.Replicas, LearningRateScale: scale,
		Data: events.Data{GlobalBatch: globalBatch, MicroBatch: job.MicroBatch},
		Predicted: events.Predicted{
			StepSeconds: best.StepSeconds, StepSecondsLowerBound: best.LowerBoundSeconds,
			TransitionSeconds: best.TransitionSeconds, PeakBytes: best.PeakBytes,
			SamplesPerSecond: float64(globalBatch) / best.StepSeconds, Unmeasured: isUnmeasured(request),
			Correction: s.Correction, OverheadSeconds: s.OverheadSeconds, OwnSeconds: s.OwnSeconds,
		},
	}
	if request.Generation > 1 {
		plan.Parent = "pending" // the negotiator writes the digest when it commits
	}
	for _, node := range request.Nodes {
		plan.Nodes = append(plan.Nodes, node.Member)
	}
	for _, idle := range best.Idle {
		plan.Idle = append(plan.Idle, events.Idle(idle))
	}
	tied := runsOf(job)
	for _, pipeline := range best.Pipelines {
		stages := make([]events.Stage, len(pipeline.Stages))
		for st, stage := range pipeline.Stages {
			stages[st] = events.Stage{Node: stage.Node, Layers: tied.layers(stage.Layers)}
		}
		plan.Pipelines = append(plan.Pipelines,
			events.Pipeline{MicroBatches: pipeline.MicroBatches, Stages: stages, Partitions: pipeline.Partitions})
	}
	for _, reroute := range best.Reroutes {
		plan.Reroutes = append(plan.Reroutes, events.Reroute{
			From: reroute.From, To: reroute.To, Stage: reroute.Stage, MicroBatches: reroute.MicroBatches,
			Layers: tied.layers(reroute.Layers),
		})
	}
	plan.Deal()
	if request.Job.Data == events.LocalData {
		weigh(&plan, request.Nodes)
	}
	plan.Sync = order(&plan, s, job.Layers)
	plan.Considered = considered
	return &events.Proposal{Negotiation: request.Negotiation, Plan: plan, Classes: best.Classes}
}

// weigh has each replica count as much as the local data of its node, where all nodes tell how much they have.
func weigh(plan *events.Plan, nodes []events.Device) {
	samples, total := map[string]float64{}, 0.0
	for _, node := range nodes {
		samples[node.Node] = float64(node.Samples) // a sum of these has no end to run over
	}
	for _, pipeline := range plan.Pipelines {
		own := samples[pipeline.Stages[0].Node]
		if own < 1 {
			return
		}
		total += own
	}
	for p := range plan.Pipelines {
		pipeline := &plan.Pipelines[p]
		pipeline.Weight = samples[pipeline.Stages[0].Node] / total
	}
}

// patience is for how many times the expected time lost nodes are waited for: where they come back at random, six of
// seven are back by then.
const patience = 2

// deferral says for whom and how long to wait.
func deferral(request events.PlanRequest, considered []events.Candidate) events.Deferral {
	var lost []string
	for _, member := range request.Current.Nodes {
		if !slices.ContainsFunc(request.Nodes, func(device events.Device) bool { return device.Node == member.Node }) {
			lost = append(lost, member.Node)
		}
	}
	names := strings.Join(lost[:min(len(lost), 8)], ", ")
	return events.Deferral{
		Negotiation: request.Negotiation, Seconds: patience * request.SecondsUntilReturn, Considered: considered,
		Reason: fmt.Sprintf("waiting for %s, expected back in %.3g s, trains more until the next failure than any plan without",
			names, request.SecondsUntilReturn),
	}
}

// weighed is candidates as the plan tells of them.
func weighed(candidates []policy.Candidate) []events.Candidate {
	var considered []events.Candidate
	for _, candidate := range candidates {
		considered = append(considered, events.Candidate{
			Policy: candidate.Policy, Shape: candidate.Shape(), StepSeconds: candidate.StepSeconds,
			TransitionSeconds: candidate.TransitionSeconds, Score: candidate.Score, Rejected: candidate.Rejected,
		})
	}
	return considered
}
