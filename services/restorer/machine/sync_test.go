package machine

import (
	"slices"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/restorer/layers"
	"github.com/reknit/reknit/services/restorer/rounds"
)

func TestGroupsKeepTheOrderThatTheProposalHasForThem(t *testing.T) {
	names := []string{"n1", "n2", "n3", "n4"}
	proposed := newRings(events.Sync{Rounds: []events.Round{
		{Groups: []events.Group{{Layers: events.Range{First: 2, End: 4}, Nodes: []string{"n1", "n4", "n2"}}}},
		{Groups: []events.Group{{Layers: events.Range{First: 0, End: 2}, Nodes: []string{"n1", "n3", "n2", "n4"}}}},
	}}, names)
	for _, test := range []struct {
		first, end  int
		nodes, want []int
	}{
		{0, 2, []int{0, 1, 2, 3}, []int{0, 2, 1, 3}},
		{1, 2, []int{0, 1, 2, 3}, []int{0, 2, 1, 3}}, // a part of its layers
		{3, 4, []int{0, 1, 3}, []int{0, 3, 1}},
		{2, 4, []int{0, 1}, []int{0, 1}}, // others hold them
	} {
		group := rounds.Group{Layers: layers.Range{First: test.first, End: test.end}, Nodes: test.nodes}
		if got := proposed.of(group); !slices.Equal(got, test.want) {
			t.Errorf("layers [%d, %d) of %v are reduced as %v, expected %v", test.first, test.end, test.nodes, got, test.want)
		}
		if got := rings(nil).of(group); !slices.Equal(got, test.nodes) {
			t.Errorf("without a proposal %v are reduced as %v", test.nodes, got)
		}
	}
}

func TestAnAllReduceTakesAsLongAsTheSlowestLinkOfItsRing(t *testing.T) {
	names := []string{"n0", "n1", "n2", "n3"}
	r := &restoration{}
	r.Usual = &events.Usual{RoundTripSeconds: events.AssumedRoundTripSeconds, BandwidthBytesPerSecond: 1e9}
	r.Gradients = []int64{4e9}
	link := events.Link{}
	link.From, link.To = "n1", "n0"
	link.BandwidthBytesPerSecond, link.RoundTripSeconds = 1e8, events.AssumedRoundTripSeconds
	r.Links = []events.Link{link}
	for _, test := range []struct {
		ring    []int
		seconds float64
	}{{[]int{0, 1, 2, 3}, 60}, {[]int{0, 2, 1, 3}, 6}} {
		group := rounds.Group{Layers: layers.Range{End: 1}, Nodes: []int{0, 1, 2, 3}}
		took := r.reduction(names, rings{{Layers: group.Layers, Nodes: test.ring}})(group)
		if want := int64(1e9 * (test.seconds + 3*events.AssumedRoundTripSeconds)); took != want {
			t.Errorf("around %v it takes %s, expected %s", test.ring, time.Duration(took), time.Duration(want))
		}
	}
}

// cutDifferently is two pipelines whose layers are reduced each by another pair of nodes.
func cutDifferently() events.RestorationRequest {
	request := events.RestorationRequest{Negotiation: "g2", Units: []int64{9e6, 9e6, 9e6, 9e6}}
	plan := &request.Proposal.Plan
	plan.Pipelines = []events.Pipeline{
		{Stages: []events.Stage{stage("a1", 0, 2), stage("a2", 2, 4)}},
		{Stages: []events.Stage{stage("b1", 0, 1), stage("b2", 1, 3), stage("b3", 3, 4)}},
	}
	plan.Nodes = members("a1", "a2", "b1", "b2", "b3")
	for _, pipeline := range plan.Pipelines {
		for _, stage := range pipeline.Stages {
			request.Holders = append(request.Holders, held(stage.Node, stage.Layers.First, stage.Layers.End))
		}
	}
	return request
}

func expectTheOuterLayersInARound(t *testing.T, request events.RestorationRequest) {
	t.Helper()
	restoration, err := Restore(request)
	if err != nil {
		t.Fatal(err)
	}
	rounds := restoration.Plan.Sync.Rounds
	if len(rounds) != 3 || len(rounds[0].Groups) != 2 || rounds[0].Groups[0].Layers.First != 0 ||
		rounds[0].Groups[1].Layers.First != 3 {
		t.Fatalf("rounds %+v, want layers 0 and 3 in one", rounds)
	}
}

// Layers 0 and 3 are reduced over slow links, 1 and 2 over fast ones. Two rounds would wait for a slow link each.
func TestAllReducesOverSlowLinksShareARound(t *testing.T) {
	request := cutDifferently()
	for _, pair := range [][2]string{{"a1", "b1"}, {"a2", "b3"}} {
		link := events.Link{Measurement: events.Measurement{From: pair[0], To: pair[1], BandwidthBytesPerSecond: 1e6}}
		request.Links = append(request.Links, link)
	}
	expectTheOuterLayersInARound(t, request)
}

func TestAllReducesOfLargeGradientsShareARoundHoweverLargeTheStateIs(t *testing.T) {
	request := cutDifferently()
	request.Units, request.Gradients = []int64{1e6, 9e9, 9e9, 1e6}, []int64{9e8, 1e6, 1e6, 9e8}
	expectTheOuterLayersInARound(t, request)
}

// The outer layers have most state, as the request of a negotiator that does not tell gradients says.
func TestWhereGradientsAreNotToldTheStateWeighsInstead(t *testing.T) {
	request := cutDifferently()
	request.Units = []int64{9e8, 1e6, 1e6, 9e8}
	expectTheOuterLayersInARound(t, request)
}
