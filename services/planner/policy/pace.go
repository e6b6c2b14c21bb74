package policy

import (
	"cmp"
	"slices"

	"github.com/reknit/reknit/services/planner/place"
	"github.com/reknit/reknit/services/planner/search"
)

// paced is the draft in which fast nodes share pipelines and train their largest stages, with its candidate, where that
// is better than a candidate that lets nodes keep most: a pipeline is as fast as its slowest stage. As few layers as
// possible move then, too.
func (d draft) paced(candidate Candidate) (draft, Candidate) {
	paced, s := d, d.situation
	paced.problem.NeedSpeed = s.paces(d.plan, d.among.nodes)
	for _, node := range d.among.nodes {
		paced.problem.Speed = append(paced.problem.Speed, s.Speed[node])
	}
	assignment, err := place.Assign(paced.problem)
	if err != nil {
		return d, candidate // nobody has the memory and the speed
	}
	if other := paced.candidate(assignment); s.score(other) > s.score(candidate) {
		return paced, other
	}
	return d, candidate
}

// paces is the speed that each place of a plan needs where nodes, the fastest first, fill one pipeline after the other:
// the least with which its stage takes no longer than the slowest of its pipeline must.
func (s Situation) paces(plan search.Plan, nodes []int) []float64 {
	var paces []float64
	for _, pipeline := range plan.Pipelines {
		crew := make([]float64, len(pipeline.Stages))
		for st := range crew {
			crew[st] = s.Speed[nodes[len(paces)+st]]
		}
		paces = append(paces, matched(crew, s.work(pipeline))...)
	}
	return paces
}

// work is what one micro-batch takes in each stage on a node of speed 1.
func (s Situation) work(pipeline search.Pipeline) []float64 {
	seconds := make([]float64, len(pipeline.Stages))
	for st, stage := range pipeline.Stages {
		for _, layer := range s.Layers[stage.First:stage.End] {
			seconds[st] += layer.ForwardSeconds + layer.BackwardSeconds
		}
	}
	return seconds
}

// matched gives the largest stage the fastest of a crew, and so on, and returns the least speed of the crew that each
// stage does with, if it may take as long as the slowest then does. The crew is in descending order.
func matched(crew, work []float64) []float64 {
	largest := slices.SortedFunc(slices.Values(work), func(a, b float64) int { return cmp.Compare(b, a) })
	slowest := 0.0
	for i, seconds := range largest {
		slowest = max(slowest, seconds/crew[i])
	}
	paces := make([]float64, len(crew))
	for st, seconds := range work {
		paces[st] = crew[0]
		for _, speed := range crew {
			if seconds <= slowest*speed*(1+1e-12) {
				paces[st] = speed
			}
		}
	}
	return paces
}
