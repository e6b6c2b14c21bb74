package policy

import (
	"fmt"
	"slices"

	"github.com/reknit/reknit/services/planner/estimate"
	"github.com/reknit/reknit/services/planner/place"
	"github.com/reknit/reknit/services/planner/search"
)

// repipeline plans anew for the nodes there are: how many pipelines, how long, which layers where, how many
// micro-batches for whom (Chameleon IV-C), and who sits where. One candidate for each data-parallel degree.
//
// Nodes are taken as alike: the smallest memory counts for all.
func repipeline(s Situation) ([]Candidate, error) {
	found, err := search.Best(search.Problem{
		Nodes: len(s.Nodes), NodeMemoryBytes: slices.Min(s.MemoryBytes), Layers: s.Layers, MicroBatches: s.MicroBatches,
		TransferSeconds: s.Network.TransferSeconds, DataParallel: s.DataParallel, PipelineLength: s.PipelineLength,
		MinReplicas: s.MinReplicas,
	})
	if err != nil {
		return nil, err
	}
	var candidates []Candidate
	for _, plan := range found.Considered {
		candidate, err := s.seat(plan)
		if err != nil {
			return nil, err
		}
		candidate.LowerBoundSeconds = found.LowerBoundSeconds
		candidates = append(candidates, candidate)
	}
	return candidates, nil
}

// seat gives a plan's places to nodes and fills in its figures.
func (s Situation) seat(plan search.Plan) (Candidate, error) {
	problem := place.Problem{LayerBytes: s.StateBytes, Pair: s.Network.pairCost()}
	for p, pipeline := range plan.Pipelines {
		for st, layers := range pipeline.Stages {
			problem.Places = append(problem.Places, place.Place{Pipeline: p, Stage: st, Layers: layers})
		}
	}
	for _, node := range s.Nodes {
		problem.Holds = append(problem.Holds, s.holds(node))
	}
	assignment, err := place.Assign(problem)
	if err != nil {
		return Candidate{}, err
	}
	candidate := Candidate{PeakBytes: map[string]int64{}, Replicas: len(plan.Pipelines)}
	for _, pipeline := range plan.Pipelines {
		candidate.Pipelines = append(candidate.Pipelines, Pipeline{MicroBatches: pipeline.MicroBatches})
	}
	for i, seat := range problem.Places {
		pipeline := &candidate.Pipelines[seat.Pipeline]
		pipeline.Stages = append(pipeline.Stages, Stage{Node: s.Nodes[assignment.NodeOf[i]], Layers: seat.Layers})
	}
	for p, pipeline := range plan.Pipelines {
		for st, peak := range estimate.PeakBytes(s.Layers, pipeline.Stages, pipeline.MicroBatches) {
			candidate.PeakBytes[candidate.Pipelines[p].Stages[st].Node] = peak
		}
	}
	candidate.StepSeconds = plan.StepSeconds + s.syncSeconds(candidate.Pipelines) + s.dearSeconds(candidate.Pipelines)
	candidate.TransitionSeconds = s.SwitchSeconds + s.fetchSeconds(slices.Max(assignment.MissingBytes))
	for _, class := range place.Classes(len(s.Nodes), problem.Pair) {
		var names []string
		for _, node := range class {
			names = append(names, s.Nodes[node])
		}
		candidate.Classes = append(candidate.Classes, names)
	}
	return candidate, nil
}

// pairCost counts the pairs that go through the hub; nil where there are none, so that nothing is searched in vain.
func (n Network) pairCost() func(a, b int) float64 {
	if n.Dear == nil {
		return nil
	}
	return func(a, b int) float64 {
		if n.Dear(a, b) {
			return 1
		}
		return 0
	}
}

// Shape writes the lengths of a plan's pipelines, such as 2+3.
func (c Candidate) Shape() string {
	shape := ""
	for i, pipeline := range c.Pipelines {
		if i > 0 {
			shape += "+"
		}
		shape += fmt.Sprint(len(pipeline.Stages))
	}
	return shape
}
