package machine

import (
	"slices"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/planner/estimate"
	"github.com/reknit/reknit/services/planner/policy"
	"github.com/reknit/reknit/services/planner/search"
)

// What a link is taken to be where nobody measured one: 1 Gbit/s with a round trip of a millisecond.
const (
	assumedBytesPerSecond   = 125e6
	assumedRoundTripSeconds = 1e-3
	// A pair without a direct link shares the hub with everybody, there and back: taken as ten usual transfers.
	dearTransfers = 10
)

// situation turns a request into what policies look at.
func (m *Machine) situation(request events.PlanRequest) policy.Situation {
	job := request.Job
	s := policy.Situation{
		MicroBatches: job.GlobalBatch / job.MicroBatch, GlobalBatch: job.GlobalBatch,
		DataParallel: limits(job.Pipelines), PipelineLength: limits(job.Stages), MinReplicas: m.settings.MinReplicas,
		SecondsBetweenFailures: request.SecondsBetweenFailures, SwitchSeconds: m.settings.SwitchSeconds,
	}
	for _, node := range request.Nodes {
		s.Nodes = append(s.Nodes, node.Node)
		s.MemoryBytes = append(s.MemoryBytes, node.MemoryBytes)
	}
	slowest := slowestFactor(request.Nodes)
	for _, layer := range job.Layers {
		s.Layers = append(s.Layers, estimate.Layer{
			ForwardSeconds: layer.ForwardSeconds / slowest, BackwardSeconds: layer.BackwardSeconds / slowest,
			StaticBytes: layer.StateBytes() + layer.GradientBytes, ActivationBytes: layer.ActivationBytes,
		})
		s.StateBytes = append(s.StateBytes, layer.StateBytes())
		s.GradientBytes = append(s.GradientBytes, layer.GradientBytes)
	}
	if request.Current != nil {
		s.Current = current(*request.Current)
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

func current(plan events.Plan) []policy.Pipeline {
	var pipelines []policy.Pipeline
	for _, pipeline := range plan.Pipelines {
		converted := policy.Pipeline{MicroBatches: pipeline.MicroBatches}
		for _, stage := range pipeline.Stages {
			converted.Stages = append(converted.Stages, policy.Stage{Node: stage.Node, Layers: estimate.Range(stage.Layers)})
		}
		pipelines = append(pipelines, converted)
	}
	return pipelines
}

// empty returns the nodes that were no members of the plan in force as the processes they are now: a new incarnation
// holds nothing any more.
func empty(nodes []events.Device, plan events.Plan) []string {
	var names []string
	for _, node := range nodes {
		if member, ok := plan.Member(node.Node); !ok || member.Incarnation != node.Incarnation {
			names = append(names, node.Node)
		}
	}
	return names
}

// network takes the median of the measured links as the usual one.
func network(request events.PlanRequest, nodes []string) policy.Network {
	var rates, roundTrips []float64
	dear := map[events.Pair]bool{}
	for _, link := range request.Links {
		if link.BandwidthBytesPerSecond > 0 {
			rates = append(rates, link.BandwidthBytesPerSecond)
			roundTrips = append(roundTrips, link.RoundTripSeconds)
		}
		if link.Disconnected || link.Lost {
			dear[events.PairOf(link.From, link.To)] = true
		}
	}
	rate, roundTrip := median(rates, assumedBytesPerSecond), median(roundTrips, assumedRoundTripSeconds)
	largest := int64(0)
	for _, layer := range request.Job.Layers {
		largest = max(largest, layer.OutputBytes)
	}
	usual := policy.Network{
		BytesPerSecond: rate, LatencySeconds: roundTrip / 2, TransferSeconds: float64(largest)/rate + roundTrip/2,
	}
	usual.DearSeconds = dearTransfers * usual.TransferSeconds
	for i, a := range nodes {
		for j, b := range nodes[:i] {
			if dear[events.PairOf(a, b)] {
				usual.Dear = append(usual.Dear, [2]int{j, i})
			}
		}
	}
	return usual
}

func median(values []float64, otherwise float64) float64 {
	if len(values) == 0 {
		return otherwise
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// proposal writes the best candidate as a plan, with the others beside it.
func proposal(request events.PlanRequest, candidates []policy.Candidate) *events.Proposal {
	best := candidates[0]
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
		converted := events.Pipeline{MicroBatches: pipeline.MicroBatches}
		for _, stage := range pipeline.Stages {
			converted.Stages = append(converted.Stages, events.Stage{Node: stage.Node, Layers: events.Layers(stage.Layers)})
		}
		plan.Pipelines = append(plan.Pipelines, converted)
	}
	for _, reroute := range best.Reroutes {
		plan.Reroutes = append(plan.Reroutes, events.Reroute(reroute))
	}
	for _, candidate := range candidates {
		plan.Considered = append(plan.Considered, events.Candidate{
			Policy: candidate.Policy, Shape: candidate.Shape(), StepSeconds: candidate.StepSeconds,
			TransitionSeconds: candidate.TransitionSeconds, Score: candidate.Score, Rejected: candidate.Rejected,
		})
	}
	return &events.Proposal{Negotiation: request.Negotiation, Plan: plan, Classes: best.Classes}
}
