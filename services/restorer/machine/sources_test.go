package machine

import (
	"fmt"
	"testing"

	"github.com/reknit/reknit/events"
)

const replicaUnits = 4

// replicas is a job of whole replicas: so many nodes have all of it, and others are to fetch it.
func replicas(holding, joining int) events.RestorationRequest {
	plan := events.Plan{Cluster: "c", Generation: 2, Parent: "p", Data: events.Data{GlobalBatch: holding + joining, MicroBatch: 1}}
	request := events.RestorationRequest{Negotiation: "g2"}
	for i := range holding + joining {
		name := fmt.Sprintf("n%d", i)
		plan.Nodes = append(plan.Nodes, members(name)...)
		plan.Pipelines = append(plan.Pipelines, events.Pipeline{MicroBatches: 1, Stages: []events.Stage{stage(name, 0, replicaUnits)}})
		if i < holding {
			request.Holders = append(request.Holders, held(name, 0, replicaUnits))
		}
	}
	for range replicaUnits {
		request.Units = append(request.Units, 64<<20)
	}
	request.Proposal = events.Proposal{Negotiation: "g2", Plan: plan}
	return request
}

// moved is what a restoration has nodes say and do.
type moved struct {
	offers   int
	givers   map[int]map[string]bool    // by unit
	sources  map[string]map[string]bool // by receiver
	receives map[string]int             // nodes, by giver
}

func move(t *testing.T, request events.RestorationRequest) (moved, events.Plan) {
	t.Helper()
	restoration, err := Restore(request)
	if err == nil {
		err = restoration.Validate()
	}
	if err != nil {
		t.Fatal(err)
	}
	m := moved{givers: map[int]map[string]bool{}, sources: map[string]map[string]bool{}, receives: map[string]int{}}
	for _, transfer := range restoration.Plan.Migration.Transfers {
		if m.givers[transfer.Unit] == nil {
			m.givers[transfer.Unit] = map[string]bool{}
		}
		if m.sources[transfer.To] == nil {
			m.sources[transfer.To] = map[string]bool{}
		}
		for _, source := range transfer.Sources {
			m.givers[transfer.Unit][source.Node] = true
			if !m.sources[transfer.To][source.Node] {
				m.sources[transfer.To][source.Node] = true
				m.receives[source.Node]++
			}
		}
	}
	for _, givers := range m.givers {
		m.offers += len(givers)
	}
	return m, restoration.Plan
}

func TestAmongManyWhoHoldAllOfItANodeAsksFewAndIsReadyAsSoon(t *testing.T) {
	few, plan := move(t, replicas(leastSources, 1))
	many, other := move(t, replicas(300, 1))
	if len(many.sources["n300"]) != leastSources || many.offers > leastSources+replicaUnits {
		t.Errorf("%d sources and %d offers, of 300 nodes", len(many.sources["n300"]), many.offers)
	}
	if len(few.sources["n16"]) != leastSources || plan.Predicted.TransitionSeconds != other.Predicted.TransitionSeconds {
		t.Errorf("of %d holders %d give, in %v s; of 300 in %v s", leastSources, len(few.sources["n16"]),
			plan.Predicted.TransitionSeconds, other.Predicted.TransitionSeconds)
	}
}

func TestManyWhoFetchAskDifferentHoldersAndTheLogKeepsAllOffersOfAUnit(t *testing.T) {
	m, _ := move(t, replicas(300, 40))
	for unit, givers := range m.givers {
		if len(givers) > mostGivers || 2*len(givers) > events.EventStream.Newest {
			t.Errorf("%d nodes give unit %d", len(givers), unit)
		}
	}
	for giver, receivers := range m.receives {
		if receivers > 40*leastSources/mostGivers+1 {
			t.Errorf("%s gives to %d of 40 nodes", giver, receivers)
		}
	}
	if len(m.receives) != mostGivers {
		t.Errorf("%d nodes give to 40: expected %d", len(m.receives), mostGivers)
	}
}

func TestAmongManyHoldersTheOneWithAFastLinkIsAsked(t *testing.T) {
	request := replicas(300, 1)
	request.Links = []events.Link{{Measurement: events.Measurement{
		From: "n77", To: "n300", RoundTripSeconds: 0.01, BandwidthBytesPerSecond: 10 * events.AssumedBytesPerSecond,
	}}}
	if m, _ := move(t, request); !m.sources["n300"]["n77"] {
		t.Errorf("%v are asked", m.sources["n300"])
	}
}

// A node of another site: nobody who has what it needs has a fast link to it.
func TestWhereEachLinkIsSlowAsManyAreAskedAsFillTheDownlink(t *testing.T) {
	request := replicas(100, 2)
	for i := range 100 {
		request.Links = append(request.Links, events.Link{Measurement: events.Measurement{
			From: fmt.Sprintf("n%d", i), To: "n100", RoundTripSeconds: 0.01, BandwidthBytesPerSecond: events.AssumedBytesPerSecond / 50,
		}})
	}
	m, plan := move(t, request)
	if slow := len(m.sources["n100"]); slow < 45 || slow > 51 || len(m.sources["n101"]) != leastSources {
		t.Errorf("%d are asked over slow links, and %d over others", slow, len(m.sources["n101"]))
	}
	least := 4 * 64 << 20 / events.AssumedBytesPerSecond
	if seconds := plan.Predicted.TransitionSeconds; seconds > 1.1*float64(least) {
		t.Errorf("%v s over slow links, and %v s over one that is not", seconds, least)
	}
}

func TestAmongManyHoldersTheOnlyOneThatIsNearIsAskedDirectly(t *testing.T) {
	request := replicas(300, 1)
	for i := range 300 {
		if i != 211 {
			request.Unreachable = append(request.Unreachable, events.PairOf(fmt.Sprintf("n%d", i), "n300"))
		}
	}
	if m, _ := move(t, request); len(m.sources["n300"]) != 1 || !m.sources["n300"]["n211"] {
		t.Errorf("%v are asked", m.sources["n300"])
	}
}

// What is left out where all places are alike finds the same, or as good.
func TestWhereAllPlacesAreAlikeTheProposalStays(t *testing.T) {
	request := replicas(5, 2)
	request.Proposal.Classes = [][]string{{"n0", "n1", "n2", "n3", "n4", "n5", "n6"}}
	_, plan := move(t, request)
	for i, pipeline := range plan.Pipelines {
		if want := fmt.Sprintf("n%d", i); pipeline.Stages[0].Node != want {
			t.Errorf("%s takes the place of %s", pipeline.Stages[0].Node, want)
		}
	}
	if moved := len(plan.Migration.Transfers); moved != 2*replicaUnits {
		t.Errorf("%d transfers", moved)
	}
}

// n300 reaches n50 alone, and nobody else does: the fastest for the forty others are not for it.
func TestWhoReachesOneHolderAloneIsGivenByItThoughManyOthersFetch(t *testing.T) {
	request := replicas(300, 41)
	for i := range 341 {
		if i != 50 && i != 300 {
			name := fmt.Sprintf("n%d", i)
			request.Unreachable = append(request.Unreachable, events.PairOf(name, "n300"), events.PairOf("n50", name))
		}
	}
	if m, _ := move(t, request); len(m.sources["n300"]) != 1 || !m.sources["n300"]["n50"] {
		t.Errorf("%v are asked", m.sources["n300"])
	}
}

func TestANodeAsksThoseOfItsOwnSiteThoughNobodyMeasuredItsLinksToTheOther(t *testing.T) {
	request := replicas(60, 1)
	site := func(i int) string { return [2]string{"here", "there"}[i%2] }
	for i := range request.Proposal.Plan.Nodes {
		request.Proposal.Plan.Nodes[i].Site = site(i)
	}
	request.Usual = events.AssumedUsual()
	request.Usual.Between = []events.Measurement{
		{From: "there", To: "here", RoundTripSeconds: 0.05, BandwidthBytesPerSecond: events.AssumedBytesPerSecond / 10},
	}
	m, _ := move(t, request)
	if len(m.sources["n60"]) < leastSources {
		t.Errorf("%d are asked", len(m.sources["n60"]))
	}
	for i := range 60 {
		if name := fmt.Sprintf("n%d", i); m.sources["n60"][name] && site(i) != site(60) {
			t.Errorf("%s is asked, which stands %s", name, site(i))
		}
	}
}
