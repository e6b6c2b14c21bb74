package events

import (
	"slices"
	"testing"
)

func TestRanksGoAroundTheRingWhereThereIsOneAndAlongThePipelinesElse(t *testing.T) {
	whole, first, last := Range{0, 2}, Range{0, 1}, Range{1, 2}
	replica := func(node string) Pipeline { return Pipeline{Stages: []Stage{{node, whole}}} }
	plan := Plan{
		Nodes:     []Member{{Node: "a"}, {Node: "b"}, {Node: "c"}, {Node: "waits"}},
		Pipelines: []Pipeline{replica("a"), replica("b"), replica("lost"), replica("c")},
		Sync:      Sync{Rounds: []Round{{Groups: []Group{{whole, []string{"a", "c", "b"}}}}}},
	}
	if got := plan.Ranks(); !slices.Equal(got, []string{"a", "c", "b"}) {
		t.Errorf("replicas have the ranks %v, expected those of the ring", got)
	}
	plan.Sync = Sync{}
	if got := plan.Ranks(); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("without a ring they have the ranks %v", got)
	}
	plan.Pipelines = []Pipeline{{Stages: []Stage{{"a", first}, {"b", last}}}, {Stages: []Stage{{"c", first}, {"waits", last}}}}
	plan.Sync.Rounds = []Round{{Groups: []Group{{last, []string{"b", "waits"}}, {first, []string{"a", "c"}}}}}
	if got := plan.Ranks(); !slices.Equal(got, []string{"a", "b", "c", "waits"}) {
		t.Errorf("stages have the ranks %v", got)
	}
}
