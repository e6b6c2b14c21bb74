package local

import (
	"slices"
	"testing"

	"github.com/reknit/reknit/events"
)

func TestAStepIsThePartThatThePlanGivesATrainer(t *testing.T) {
	whole := events.Range{End: 4}
	plan := &events.Plan{
		Generation: 3, ResumeStep: 20, LearningRateScale: 2, WarmUp: &events.WarmUp{FromScale: 1, FirstStep: 20, Steps: 4},
		Nodes: []events.Member{{Node: "a"}, {Node: "c"}},
		Pipelines: []events.Pipeline{
			{MicroBatches: 2, Stages: []events.Stage{{Node: "a", Layers: whole}}},
			{MicroBatches: 1, Stages: []events.Stage{{Node: "b", Layers: whole}}}, // lost
			{MicroBatches: 3, Stages: []events.Stage{{Node: "c", Layers: whole}}},
		},
		Reroutes: []events.Reroute{{From: "b", To: "c", MicroBatches: 1}},
		Data:     events.Data{GlobalBatch: 24, MicroBatch: 4, ConsumedSamples: 100},
	}
	got := trainingOf(plan, "c", 21, false)
	if want := [][2]int{{12, 24}, {8, 12}}; !slices.Equal(got.Samples, want) {
		t.Errorf("samples %v, expected %v: its own and those of b", got.Samples, want)
	}
	if got.Rank != 1 || got.World != 2 {
		t.Errorf("rank %d of %d: expected the second of two who live", got.Rank, got.World)
	}
	if got.Consumed != 124 || got.LearningRateScale != 1.5 {
		t.Errorf("from sample %d at a scale of %v: expected 124 and half way to 2", got.Consumed, got.LearningRateScale)
	}
}
