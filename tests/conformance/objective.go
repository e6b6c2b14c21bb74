package main

import (
	"github.com/reknit/reknit/services/planner/estimate"
	"github.com/reknit/reknit/tests/papers/chameleon"
)

type objectiveInput struct {
	Samples    int     `json:"global_batch_samples"`
	Between    float64 `json:"time_between_faults_s"`
	Candidates []struct {
		Name       string
		Step       float64 `json:"step_s"`
		Transition float64 `json:"transition_s"`
	}
}

func solveObjective(in objectiveInput) (answer, error) {
	paper, bestByPaper := in.scores(chameleon.Throughput)
	memoryless, bestByMemoryless := in.scores(estimate.ExpectedThroughput)
	return answer{
		"paper_objective_samples_per_s": paper, "best_by_paper": bestByPaper,
		"memoryless_objective_samples_per_s": memoryless, "best_by_memoryless": bestByMemoryless,
	}, nil
}

// scores are those of the candidates, and the name of the first of the best.
func (in objectiveInput) scores(throughput func(samples int, step, transition,
	between float64) float64) (scores []float64, best string) {
	highest := -1.0
	for _, candidate := range in.Candidates {
		score := throughput(in.Samples, candidate.Step, candidate.Transition, in.Between)
		scores = append(scores, score)
		if score > highest {
			highest, best = score, candidate.Name
		}
	}
	return scores, best
}
