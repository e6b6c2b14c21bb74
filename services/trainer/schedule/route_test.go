package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// pipeline returns stages "<name>0", "<name>1", ... that end at the given layers.
func pipeline(name string, microBatches int, ends ...int) Pipeline {
	p := Pipeline{MicroBatches: microBatches}
	first := 0
	for i, end := range ends {
		p.Stages = append(p.Stages, Stage{Node: fmt.Sprint(name, i), First: first, End: end})
		first = end
	}
	return p
}

func routesOf(t *testing.T, layout Layout) []Route {
	t.Helper()
	routes, err := layout.Routes()
	if err != nil {
		t.Fatal(err)
	}
	return routes
}

func TestMicroBatchesAreHandedOutInThePlansOrder(t *testing.T) {
	routes := routesOf(t, Layout{Pipelines: []Pipeline{pipeline("a", 2, 3, 6), pipeline("b", 3, 2, 4, 6)}})
	for microBatch, want := range []string{"a0", "a0", "b0", "b0", "b0"} {
		if got := routes[microBatch][0].Node; got != want {
			t.Errorf("micro-batch %d begins on %s: expected %s", microBatch, got, want)
		}
	}
}

func TestALostStageIsRunByItsTakersOneAfterTheOther(t *testing.T) {
	layout := Layout{
		Pipelines: []Pipeline{pipeline("a", 6, 3, 6), pipeline("b", 1, 3, 6), pipeline("c", 1, 3, 6)},
		Reroutes:  []Reroute{{From: "a1", To: "b1", MicroBatches: 4}, {From: "a1", To: "c1", MicroBatches: 2}},
	}
	var takers []string
	for _, route := range routesOf(t, layout)[:6] {
		takers = append(takers, route[1].Node)
	}
	if want := []string{"b1", "b1", "b1", "b1", "c1", "c1"}; !slices.Equal(takers, want) {
		t.Errorf("takers are %q: expected the plan's shares in its order, %q", takers, want)
	}
}

func TestALostStageMayBeCoveredInParts(t *testing.T) {
	layout := Layout{
		Pipelines: []Pipeline{pipeline("a", 2, 2, 6), pipeline("b", 1, 4, 6)},
		Reroutes:  []Reroute{{From: "a1", To: "b0", MicroBatches: 2}, {From: "a1", To: "b1", MicroBatches: 2}},
	}
	want := Route{{"a0", 0, 2}, {"b0", 2, 4}, {"b1", 4, 6}}
	if got := routesOf(t, layout)[0]; !slices.Equal(got, want) {
		t.Errorf("route is %v: expected %v", got, want)
	}
}

func TestNeighbouringLostStagesOnOneNodeAreOneStop(t *testing.T) {
	layout := Layout{
		Pipelines: []Pipeline{pipeline("a", 1, 2, 4, 6), pipeline("b", 1, 6)},
		Reroutes:  []Reroute{{From: "a1", To: "b0", MicroBatches: 1}, {From: "a2", To: "b0", MicroBatches: 1}},
	}
	want := Route{{"a0", 0, 2}, {"b0", 2, 6}}
	if got := routesOf(t, layout)[0]; !slices.Equal(got, want) {
		t.Errorf("route is %v: expected %v", got, want)
	}
}

func TestReroutesThatDoNotAddUpAreRefused(t *testing.T) {
	for name, reroutes := range map[string][]Reroute{
		"too few":                {{From: "a1", To: "b1", MicroBatches: 1}},
		"too many":               {{From: "a1", To: "b1", MicroBatches: 3}},
		"to no holder":           {{From: "a1", To: "b0", MicroBatches: 2}},
		"to another lost holder": {{From: "a1", To: "b1", MicroBatches: 2}, {From: "b1", To: "a1", MicroBatches: 1}},
	} {
		layout := Layout{Pipelines: []Pipeline{pipeline("a", 2, 3, 6), pipeline("b", 1, 3, 6)}, Reroutes: reroutes}
		if routes, err := layout.Routes(); err == nil {
			t.Errorf("%s: got routes %v: expected an error", name, routes)
		}
	}
}

func TestARerouteOfSomeLayersIsOfThoseAlone(t *testing.T) {
	layout := Layout{
		Pipelines: []Pipeline{pipeline("a", 2, 3), pipeline("b", 1, 3), pipeline("c", 1, 3)},
		Reroutes: []Reroute{
			{From: "a0", To: "b0", MicroBatches: 2, First: 0, End: 1}, {From: "a0", To: "c0", MicroBatches: 1, First: 1, End: 2},
			{From: "a0", To: "c0", MicroBatches: 2, First: 2, End: 3}, {From: "a0", To: "b0", MicroBatches: 1, First: 1, End: 2},
		},
	}
	want := []Route{{{"b0", 0, 1}, {"c0", 1, 3}}, {{"b0", 0, 2}, {"c0", 2, 3}}}
	if got := routesOf(t, layout)[:2]; !slices.EqualFunc(got, want, slices.Equal[Route]) {
		t.Errorf("routes are %v: expected %v", got, want)
	}
}

// randomLayout has 1 to 3 pipelines of random lengths over the same layers. With several pipelines some nodes of the
// first one may be lost, each rerouted layer by layer to whoever holds the layer in the others.
func randomLayout(random *rand.Rand) Layout {
	layers := 1 + random.IntN(8)
	var layout Layout
	for _, name := range []string{"a", "b", "c"}[:1+random.IntN(3)] {
		var ends []int
		for end := 1; end < layers; end++ {
			if random.IntN(3) == 0 {
				ends = append(ends, end)
			}
		}
		layout.Pipelines = append(layout.Pipelines, pipeline(name, 1+random.IntN(6), append(ends, layers)...))
	}
	if len(layout.Pipelines) == 1 {
		return layout
	}
	for _, lost := range layout.Pipelines[0].Stages {
		if random.IntN(2) == 0 {
			continue
		}
		for layer := lost.First; layer < lost.End; layer++ {
			left := layout.Pipelines[0].MicroBatches
			for p, other := range layout.Pipelines[1:] {
				count := random.IntN(left + 1)
				if p == len(layout.Pipelines)-2 {
					count = left
				}
				holds := func(stage Stage) bool { return stage.First <= layer && layer < stage.End }
				taker := other.Stages[slices.IndexFunc(other.Stages, holds)]
				if left -= count; count > 0 {
					layout.Reroutes = append(layout.Reroutes, Reroute{lost.Node, taker.Node, count, layer, layer + 1})
				}
			}
		}
	}
	return layout
}

func TestEveryRoutePassesEveryLayerOnceOnALiveHolder(t *testing.T) {
	for seed := range uint64(500) {
		layout := randomLayout(rand.New(rand.NewPCG(seed, 1)))
		layers := layout.Pipelines[0].Stages[len(layout.Pipelines[0].Stages)-1].End
		for microBatch, route := range routesOf(t, layout) {
			next := 0
			for hop, stop := range route {
				for layer := stop.First; layer < stop.End; layer++ {
					if layer != next || layout.lost(stop.Node) || !layout.holds(stop.Node, layer) {
						t.Fatalf("seed %d: micro-batch %d runs layer %d on %q: expected layer %d on a live holder", seed, microBatch,
							layer, stop.Node, next)
					}
					next++
				}
				if hop > 0 && route[hop-1].Node == stop.Node {
					t.Fatalf("seed %d: micro-batch %d: expected another node after %q", seed, microBatch, stop.Node)
				}
			}
			if next != layers {
				t.Fatalf("seed %d: micro-batch %d ends after layer %d: expected %d", seed, microBatch, next, layers)
			}
		}
	}
}

func TestPeersAreMutual(t *testing.T) {
	for seed := range uint64(200) {
		layout := randomLayout(rand.New(rand.NewPCG(seed, 2)))
		routes := routesOf(t, layout)
		peers := map[string][]string{}
		for _, p := range layout.Pipelines {
			for _, stage := range p.Stages {
				peers[stage.Node] = Peers(stage.Node, routes, nil)
			}
		}
		for node := range peers {
			for _, peer := range peers[node] {
				if peer == node || !slices.Contains(peers[peer], node) {
					t.Fatalf("seed %d: %q has peer %q but not the reverse", seed, node, peer)
				}
			}
		}
	}
}
