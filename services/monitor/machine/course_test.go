package machine_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine"
)

// grid is a world with a plan of so many pipelines, each of so many stages, and the links that the plan uses, both ways.
func grid(t *testing.T, pipelines, stages int) (w *world, used map[[2]string]bool) {
	var names []string
	for i := range pipelines * stages {
		names = append(names, fmt.Sprintf("n%04d", i))
	}
	w, used = newWorld(t, names...), map[[2]string]bool{}
	use := func(a, b string) { used[[2]string{a, b}], used[[2]string{b, a}] = true, true }
	plan := events.Plan{Cluster: cluster, Generation: 1, Policy: "repipeline", Data: events.Data{GlobalBatch: pipelines, MicroBatch: 1}}
	groups := make([]events.Group, stages)
	at := func(pipeline, stage int) string { return names[(pipeline*7+stage*pipelines)%len(names)] } // nobody's neighbour by name
	for p := range pipelines {
		pipeline := events.Pipeline{MicroBatches: 1}
		for s := range stages {
			pipeline.Stages = append(pipeline.Stages, events.Stage{Node: at(p, s), Layers: events.Range{First: s, End: s + 1}})
			groups[s].Layers, groups[s].Nodes = events.Range{First: s, End: s + 1}, append(groups[s].Nodes, at(p, s))
			if s > 0 {
				use(at(p, s-1), at(p, s))
			}
			use(at(p, s), at((p+1)%pipelines, s))
		}
		plan.Pipelines = append(plan.Pipelines, pipeline)
	}
	plan.Sync.Rounds = []events.Round{{Groups: groups}}
	w.machine.Uses(&plan)
	w.asks = nil
	return w, used
}

// n5 has twelve of the twenty-four directions between six nodes that no ring and no pipeline uses.
func TestLinksOfANodeThatWaitsForThemAreMeasuredAsThoseOfThePlanAre(t *testing.T) {
	w, _ := grid(t, 6, 1)
	plan := events.Plan{Cluster: cluster, Generation: 2, Idle: []events.Idle{{Node: "n0005", StepSeconds: 3, NeedsBytesPerSecond: 1e8}}}
	var ring []string
	for _, name := range w.names()[:5] {
		plan.Pipelines = append(plan.Pipelines, events.Pipeline{Stages: []events.Stage{{Node: name, Layers: events.Range{End: 1}}}})
		ring = append(ring, name)
	}
	plan.Sync.Rounds = []events.Round{{Groups: []events.Group{{Layers: events.Range{End: 1}, Nodes: ring}}}}
	w.machine.Uses(&plan)
	used := map[[2]string]bool{{"n0005", "n0000"}: true, {"n0000", "n0005"}: true, {"n0005", "n0001"}: true, {"n0001", "n0005"}: true}
	if oldest, _ := w.oldest(used, 5*time.Minute); oldest > 40*time.Second { // fourteen directions have three of four probes
		t.Errorf("a link of n0005 was not measured for %v", oldest)
	}
}

// oldest lets time pass, a second at a time. It returns for how long any of some links was not measured, counted from the
// beginning, and the most links that were probed in one second.
func (w *world) oldest(links map[[2]string]bool, duration time.Duration) (oldest time.Duration, most int) {
	began, last := w.now, map[[2]string]time.Time{}
	age := func(link [2]string) time.Duration {
		if at, measured := last[link]; measured {
			return w.now.Sub(at)
		}
		return w.now.Sub(began)
	}
	for end := w.now.Add(duration); w.now.Before(end); {
		w.asks = nil
		w.pass(time.Second)
		probes := 0
		for _, ask := range w.asks {
			if ask.Bytes == 0 {
				continue // a sign of life
			}
			link := [2]string{ask.Node, ask.Target}
			if probes++; links[link] {
				oldest = max(oldest, age(link))
			}
			last[link] = w.now
		}
		most = max(most, probes)
	}
	for link := range links {
		oldest = max(oldest, age(link))
	}
	return oldest, most
}

// 1,000 nodes have a plan of 3,750 directions and more links that somebody told of, and 16 probes a second.
func TestOfAThousandNodesNoLinkOfThePlanIsOlderThanSixMinutesAndTheBudgetIsKept(t *testing.T) {
	w, used := grid(t, 125, 8)
	oldest, most := w.oldest(used, 13*time.Minute)
	if oldest > 6*time.Minute || most > 17 || len(used) < 3700 {
		t.Errorf("of %d directions one was not measured for %v, and %d were probed in one second", len(used), oldest, most)
	}
}

func TestTheLinksOfANewPlanAreMeasuredBeforeOthers(t *testing.T) {
	w, used := grid(t, 10, 4)
	round := time.Duration(len(used)*4/3+3) * time.Second
	if oldest, _ := w.oldest(used, round); oldest >= round {
		t.Errorf("of %d directions that the plan uses one was not measured within %v", len(used), round)
	}
}

func TestTheLinksOfANodeThatStandsInForALostOneAreTheirs(t *testing.T) {
	w, _ := grid(t, 10, 4)
	at := func(node string, layer int) events.Stage {
		return events.Stage{Node: node, Layers: events.Range{First: layer, End: layer + 1}}
	}
	plan := &events.Plan{Pipelines: []events.Pipeline{
		{MicroBatches: 1, Stages: []events.Stage{at("n0001", 0), at("lost", 1), at("n0020", 2)}},
		{MicroBatches: 1, Stages: []events.Stage{{Node: "n0035", Layers: events.Range{End: 3}}}},
	}, Reroutes: []events.Reroute{{From: "lost", To: "n0035", MicroBatches: 1}}, Data: events.Data{MicroBatch: 1}}
	w.machine.Uses(plan)
	links := map[[2]string]bool{{"n0001", "n0035"}: true, {"n0035", "n0001"}: true, {"n0035", "n0020"}: true, {"n0020", "n0035"}: true}
	if oldest, _ := w.oldest(links, 30*time.Second); oldest > 10*time.Second {
		t.Errorf("one of its links was not measured for %v", oldest)
	}
}

// A transfer that came as fast as its link is said to carry, or nearly, is as good as a probe. A slower one tells nothing.
func TestATransferAtTheRateOfItsLinkIsAMeasurementOfIt(t *testing.T) {
	for rate, probed := range map[float64]bool{1e8: false, 0.8e8: false, 0.5e8: true} {
		w, used := grid(t, 10, 4)
		round := time.Duration(len(used)*4/3+3) * time.Second
		w.oldest(used, round)
		w.asks = nil
		for passed := time.Duration(0); passed < round; passed += 5 * time.Second {
			w.hear("/node/n0010", events.ShardReceived, "n0010", &events.Receipt{Negotiation: "g2", Node: "n0010",
				Sources: []events.Received{{From: "n0000", Bytes: 100 << 20, BytesPerSecond: rate}}})
			w.pass(5 * time.Second)
		}
		again := slices.ContainsFunc(w.asks, func(ask machine.Ask) bool { return ask.Node == "n0000" && ask.Target == "n0010" })
		if again != probed {
			t.Errorf("a link with transfers at %.1e bytes a second was probed again: %t, expected %t", rate, again, probed)
		}
	}
}
