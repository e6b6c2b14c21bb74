package policy

import (
	"math/rand/v2"
	"testing"
)

func TestARestartReadsAllLayersAgainThoughNothingWasLost(t *testing.T) {
	s := beforeALoss()
	s.RestartSeconds, s.Network.BytesPerSecond = 30, 10
	for _, candidate := range propose(t, checkpointRestart, s) {
		longest := 6 / len(candidate.Pipelines[0].Stages) // no split of six equal layers has a stage with fewer
		if least := 0.05 + 30 + float64(longest*80)/10; candidate.TransitionSeconds < least {
			t.Errorf("%s: %v s of transition, want at least %v", candidate.Shape(), candidate.TransitionSeconds, least)
		}
	}
}

func propose(t *testing.T, policy func(Situation) ([]Candidate, error), s Situation) []Candidate {
	t.Helper()
	candidates, err := policy(s)
	if err != nil {
		t.Fatal(err)
	}
	return candidates
}

func TestARestartHasEqualPipelinesOfOneSplit(t *testing.T) {
	proposed := 0
	for seed := range uint64(300) {
		s := randomSituation(rand.New(rand.NewPCG(seed, 5)))
		candidates, _ := checkpointRestart(s)
		for _, candidate := range candidates {
			proposed++
			first := candidate.Pipelines[0]
			for _, pipeline := range candidate.Pipelines {
				if len(pipeline.Stages) != len(first.Stages) || first.MicroBatches-pipeline.MicroBatches > 1 || pipeline.MicroBatches-first.MicroBatches > 1 {
					t.Fatalf("seed %d: %v beside %v", seed, pipeline, first)
				}
				for st, stage := range pipeline.Stages {
					if stage.Layers != first.Stages[st].Layers {
						t.Fatalf("seed %d: %v beside %v", seed, pipeline, first)
					}
				}
			}
		}
	}
	if proposed < 100 {
		t.Fatalf("only %d proposals", proposed)
	}
}
