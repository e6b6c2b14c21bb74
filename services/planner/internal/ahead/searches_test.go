package ahead

import (
	"bytes"
	"testing"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/planner/estimate"
	"github.com/reknit/reknit/services/planner/machine"
	"github.com/reknit/reknit/services/planner/search"
)

// One memory for all of them, asked twice.
func TestAPlanOfRememberedSearchesIsThePlanByteForByte(t *testing.T) {
	settings := machine.Settings{Cluster: "c", MinReplicas: 2, SwitchSeconds: 0.05}
	remembering := settings
	remembering.Find = (&Searches{}).Find
	for seed := range uint64(120) {
		request := random(seed % 60)
		event := said(events.PlanRequested, request.Negotiation, &request)
		fresh, err := machine.New(settings).Handle(event)
		if err != nil {
			t.Fatal(err)
		}
		got, err := machine.New(remembering).Handle(event)
		if err != nil || got[0].Kind != fresh[0].Kind || !bytes.Equal(got[0].Data, fresh[0].Data) {
			t.Fatalf("seed %d: %v\n%s\nafresh:\n%s", seed, err, got[0].Data, fresh[0].Data)
		}
	}
}

func TestTheLatestSearchesAreRemembered(t *testing.T) {
	var searches Searches
	problem := func(nodes int) search.Problem {
		return search.Problem{Nodes: nodes, Layers: make([]estimate.Layer, 1), MicroBatches: nodes}
	}
	found := func(problem search.Problem, most int) *search.Plan {
		result, err := searches.Find(problem, most)
		if err != nil {
			t.Fatal(err)
		}
		return &result.Considered[0]
	}
	first, second := found(problem(1), 1), found(problem(2), 1)
	for nodes := 3; nodes <= mostSearches; nodes++ {
		found(problem(nodes), 1)
	}
	if found(problem(1), 1) != first {
		t.Error("it was searched again")
	}
	if found(problem(1), 2) == first {
		t.Error("several plans are asked for, and the answer has one")
	}
	if found(problem(2), 1) == second || len(searches.latest) != mostSearches {
		t.Errorf("%d are remembered, and the one last used so long ago", len(searches.latest))
	}
}

func TestASearchWithAFloorIsANewOne(t *testing.T) {
	var searches Searches
	for _, floor := range []float64{1, 2} {
		problem := search.Problem{Nodes: 1, Layers: make([]estimate.Layer, 1), MicroBatches: 1, Floor: func(int) float64 { return floor }}
		if found, err := searches.Find(problem, 1); err != nil || found.LowerBoundSeconds != floor {
			t.Errorf("with a floor of %v the bound is %v, %v", floor, found.LowerBoundSeconds, err)
		}
	}
}
