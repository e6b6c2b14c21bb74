package policy

import (
	"cmp"
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
	seating := s.newSeating()
	var candidates []Candidate
	for _, plan := range found.Considered {
		candidate, err := seating.seat(plan, nil)
		if err != nil {
			return nil, err
		}
		candidate.LowerBoundSeconds = found.LowerBoundSeconds
		candidates = append(candidates, candidate)
	}
	if len(s.Network.Dear) == 0 {
		return candidates, nil
	}
	return seating.refined(found.Considered, candidates)
}

// seating gives plans' places to nodes.
type seating struct {
	Situation
	holds   []estimate.Range
	dear    []place.Pair
	classes [][]string
}

func (s Situation) newSeating() *seating {
	t := &seating{Situation: s, holds: s.holds()}
	for _, pair := range s.Network.Dear {
		t.dear = append(t.dear, place.Pair{A: pair[0], B: pair[1], Cost: 1})
	}
	for _, class := range place.Classes(len(s.Nodes), t.dear, nil) {
		var names []string
		for _, node := range class {
			names = append(names, s.Nodes[node])
		}
		t.classes = append(t.classes, names)
	}
	return t
}

// refined keeps dear pairs apart in the candidates that can still win, the most promising first: those that would be
// better than the best so far if it cost them nothing.
func (t *seating) refined(plans []search.Plan, candidates []Candidate) ([]Candidate, error) {
	hopes := make([]float64, len(plans))
	order := make([]int, len(plans))
	for i, candidate := range candidates {
		order[i] = i
		candidate.StepSeconds -= t.dearSeconds(candidate.Pipelines)
		hopes[i] = t.score(candidate)
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(hopes[b], hopes[a]) })
	best := 0.0
	for _, i := range order {
		if hopes[i] > best {
			refined, err := t.seat(plans[i], t.dear)
			if err != nil {
				return nil, err
			}
			refined.LowerBoundSeconds = candidates[i].LowerBoundSeconds
			candidates[i] = refined
			best = max(best, t.score(refined))
		}
	}
	return candidates, nil
}

// seat gives a plan's places to nodes and fills in its figures.
func (t *seating) seat(plan search.Plan, dear []place.Pair) (Candidate, error) {
	problem := place.Problem{Holds: t.holds, LayerBytes: t.StateBytes, Dear: dear}
	for p, pipeline := range plan.Pipelines {
		for st, layers := range pipeline.Stages {
			problem.Places = append(problem.Places, place.Place{Pipeline: p, Stage: st, Layers: layers})
		}
	}
	assignment, err := place.Assign(problem)
	if err != nil {
		return Candidate{}, err
	}
	candidate := Candidate{PeakBytes: map[string]int64{}, Replicas: len(plan.Pipelines), Classes: t.classes}
	for _, pipeline := range plan.Pipelines {
		candidate.Pipelines = append(candidate.Pipelines, Pipeline{MicroBatches: pipeline.MicroBatches})
	}
	for i, seat := range problem.Places {
		pipeline := &candidate.Pipelines[seat.Pipeline]
		pipeline.Stages = append(pipeline.Stages, Stage{Node: t.Nodes[assignment.NodeOf[i]], Layers: seat.Layers})
	}
	for p, pipeline := range plan.Pipelines {
		for st, peak := range estimate.PeakBytes(t.Layers, pipeline.Stages, pipeline.MicroBatches) {
			candidate.PeakBytes[candidate.Pipelines[p].Stages[st].Node] = peak
		}
	}
	candidate.StepSeconds = plan.StepSeconds + t.syncSeconds(candidate.Pipelines) + t.dearSeconds(candidate.Pipelines)
	candidate.TransitionSeconds = t.SwitchSeconds + t.fetchSeconds(slices.Max(assignment.MissingBytes))
	return candidate, nil
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
