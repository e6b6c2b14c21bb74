package machine

import (
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
	s := policy.Situation{
		MicroBatches: job.GlobalBatch / job.MicroBatch, GlobalBatch: job.GlobalBatch,
		DataParallel: limits(job.Pipelines), PipelineLength: limits(job.Stages), MinReplicas: settings.MinReplicas,
		SecondsBetweenFailures: request.SecondsBetweenFailures, SecondsUntilReturn: request.SecondsUntilReturn,
		SwitchSeconds: settings.SwitchSeconds, Partitions: job.OptimizerPartitions,
	}
	for _, node := range request.Nodes {
		s.Nodes = append(s.Nodes, node.Node)
		s.MemoryBytes = append(s.MemoryBytes, node.MemoryBytes)
	}
	slowest := slowestFactor(request.Nodes)
	s.Speed = speeds(request.Nodes, slowest)
	for _, layer := range job.Layers {
		s.Layers = append(s.Layers, estimate.Layer{
			ForwardSeconds: layer.ForwardSeconds / slowest, BackwardSeconds: layer.BackwardSeconds / slowest,
			StaticBytes: layer.StateBytes() + layer.GradientBytes, ActivationBytes: layer.ActivationBytes,
		})
		s.StateBytes = append(s.StateBytes, layer.StateBytes())
		s.GradientBytes = append(s.GradientBytes, layer.GradientBytes)
		s.OptimizerBytes = append(s.OptimizerBytes, layer.OptimizerBytes)
	}
	if request.Current != nil {
		s.Current = pipelines(request.Current.Pipelines)
		s.Empty = empty(request.Nodes, *request.Current)
	}
	s.Network = network(request, s.Nodes)
	return s
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

func pipelines(planned []events.Pipeline) []policy.Pipeline {
	var list []policy.Pipeline
	for _, pipeline := range planned {
		stages := make([]policy.Stage, len(pipeline.Stages))
		for st, stage := range pipeline.Stages {
			stages[st] = policy.Stage{Node: stage.Node, Layers: estimate.Range(stage.Layers)}
		}
		list = append(list,
			policy.Pipeline{MicroBatches: pipeline.MicroBatches, Stages: stages, Partitions: pipeline.Partitions})
	}
	return list
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

// proposal writes the best candidate as a plan, with all that were considered beside it.
func proposal(request events.PlanRequest, best policy.Candidate, considered []events.Candidate) *events.Proposal {
	plan := events.Plan{
		Cluster: request.Cluster, Generation: request.Generation, Policy: best.Policy, LearningRateScale: 1,
		Data: events.Data{GlobalBatch: request.Job.GlobalBatch, MicroBatch: request.Job.MicroBatch},
		Predicted: events.Predicted{
			StepSeconds: best.StepSeconds, StepSecondsLowerBound: best.LowerBoundSeconds,
			TransitionSeconds: best.TransitionSeconds, PeakBytes: best.PeakBytes,
			SamplesPerSecond: float64(request.Job.GlobalBatch) / best.StepSeconds,
		},
	}
	if request.Generation > 1 {
		plan.Parent = "pending" // the negotiator writes the digest when it commits
	}
	for _, node := range request.Nodes {
		plan.Nodes = append(plan.Nodes, node.Member)
	}
	for _, pipeline := range best.Pipelines {
		stages := make([]events.Stage, len(pipeline.Stages))
		for st, stage := range pipeline.Stages {
			stages[st] = events.Stage{Node: stage.Node, Layers: events.Range(stage.Layers)}
		}
		plan.Pipelines = append(plan.Pipelines,
			events.Pipeline{MicroBatches: pipeline.MicroBatches, Stages: stages, Partitions: pipeline.Partitions})
	}
	for _, reroute := range best.Reroutes {
		plan.Reroutes = append(plan.Reroutes, events.Reroute(reroute))
	}
	plan.Considered = considered
	return &events.Proposal{Negotiation: request.Negotiation, Plan: plan, Classes: best.Classes}
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
		Reason: fmt.Sprintf("waiting for %s, expected back in %.3g s, trains more until the next failure than any plan without", names, request.SecondsUntilReturn),
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
