package policy

import (
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/reknit/reknit/services/planner/search"
)

func TestAPlanOfOursThatSomebodyElseProposesHasOurFigures(t *testing.T) {
	judged := 0
	for seed := range uint64(300) {
		s := randomSituation(rand.New(rand.NewPCG(seed, 7)))
		candidates, _ := repipeline(s)
		for _, ours := range candidates {
			theirs, err := Judge(s, "theirs", ours.Pipelines)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			close := math.Abs(theirs.StepSeconds-ours.StepSeconds) <= 1e-9*ours.StepSeconds
			if !close || theirs.TransitionSeconds != ours.TransitionSeconds || theirs.Replicas != ours.Replicas ||
				!reflect.DeepEqual(theirs.PeakBytes, ours.PeakBytes) {
				t.Fatalf("seed %d: ours %+v, judged %+v", seed, ours, theirs)
			}
			judged++
		}
	}
	if judged < 100 {
		t.Fatalf("only %d plans", judged)
	}
}

func TestAPlanThatBreaksARuleIsRefusedByItsName(t *testing.T) {
	for says, spoil := range map[string]func(s *Situation, p []Pipeline) []Pipeline{
		"pipelines: expected 1 to 0": func(*Situation, []Pipeline) []Pipeline {
			return nil
		},
		"pipelines: expected 3 to 0": func(s *Situation, p []Pipeline) []Pipeline {
			s.DataParallel.Least = 3
			return p
		},
		"pipelines[0].stages: expected 1 to 2": func(s *Situation, p []Pipeline) []Pipeline { s.PipelineLength = search.Limits{Most: 2}; return p },
		"pipelines[1].stages: expected 1 to 0 (0: any), got 0": func(_ *Situation, p []Pipeline) []Pipeline {
			p[1].Stages = nil
			return p
		},
		"stages[1].layers: expected some of the 6 layers from 2 on": func(_ *Situation, p []Pipeline) []Pipeline {
			p[0].Stages[1].Layers.First = 3
			return p
		},
		"stages[2].layers: expected some": func(_ *Situation, p []Pipeline) []Pipeline {
			p[0].Stages[2].Layers.End = 7
			return p
		},
		"pipelines[0]: expected all 6 layers, got 4": func(_ *Situation, p []Pipeline) []Pipeline {
			p[0].Stages = p[0].Stages[:2]
			return p
		},
		"pipelines[0].microBatches: expected 1 to 12": func(_ *Situation, p []Pipeline) []Pipeline {
			p[0].MicroBatches = math.MaxInt
			return p
		},
		"pipelines[1].microBatches: expected 1 to 6": func(_ *Situation, p []Pipeline) []Pipeline {
			p[1].MicroBatches = -1
			return p
		},
		"expected all 12 micro-batches, 1 are left": func(_ *Situation, p []Pipeline) []Pipeline {
			p[1].MicroBatches = 5
			return p
		},
		`no other place, got "n1"`:       func(_ *Situation, p []Pipeline) []Pipeline { p[1].Stages[0].Node = "n1"; return p },
		`no other place, got "stranger"`: func(_ *Situation, p []Pipeline) []Pipeline { p[1].Stages[0].Node = "stranger"; return p },
		"n5 would need 204 B of memory, and has 203 B": func(s *Situation, p []Pipeline) []Pipeline {
			s.MemoryBytes[4] = 203
			return p
		},
	} {
		s := usual(6)
		_, err := Judge(s, "theirs", grid(2, 3, 6, 12))
		if err != nil {
			t.Fatal(err)
		}
		plan := spoil(&s, grid(2, 3, 6, 12))
		if _, err := Judge(s, "theirs", plan); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("expected %q, got %v", says, err)
		}
	}
}
