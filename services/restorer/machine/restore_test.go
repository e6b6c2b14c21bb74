package machine

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/restorer/migrate"
)

func TestSurvivorsTakeThePlacesNearestToWhatTheyHold(t *testing.T) {
	restoration, err := Restore(lossOfOne())
	if err != nil {
		t.Fatal(err)
	}
	if err := restoration.Validate(); err != nil {
		t.Fatal(err)
	}
	if held, _ := restoration.Plan.Holds("n1"); held.First != 0 {
		t.Fatalf("n1 held layers 0 and 1 and became %v", held)
	}
	if restoration.BytesMoved != 2*9000 || restoration.NaiveBytes != 12*9000 {
		t.Fatalf("moved %d bytes against %d, want 18000 against 108000", restoration.BytesMoved, restoration.NaiveBytes)
	}
}

func TestWhatIsPredictedOfAPlaceGoesWithWhoTakesIt(t *testing.T) {
	request := lossOfOne()
	request.Proposal.Plan.Predicted = events.Predicted{
		TransitionSeconds: 9, PeakBytes: map[string]int64{"n1": 101, "n3": 103, "n4": 104, "n5": 105, "n6": 106},
	}
	restoration, err := Restore(request)
	if err != nil {
		t.Fatal(err)
	}
	peaks := restoration.Plan.Predicted.PeakBytes
	if peaks["n1"] != 103 || peaks["n3"] != 101 || peaks["n5"] != 105 || len(peaks) != 5 {
		t.Errorf("peaks are %v: expected n1 and n3 to have each other's", peaks)
	}
	for _, holder := range request.Proposal.Plan.Nodes {
		request.Holders = append(request.Holders, held(holder.Node, 0, 6))
	}
	if restoration, err = Restore(request); err != nil || restoration.Plan.Predicted.TransitionSeconds != 0 {
		t.Errorf("nothing has to be fetched, and a transition of %v s is predicted, %v",
			restoration.Plan.Predicted.TransitionSeconds, err)
	}
}

// joinOfOne has n7 come, which needs layers 2 and 3.
func joinOfOne() events.RestorationRequest {
	request := lossOfOne()
	plan := &request.Proposal.Plan
	plan.Nodes = append(plan.Nodes, members("n7")...)
	plan.Pipelines[0] = events.Pipeline{
		MicroBatches: 3, Stages: []events.Stage{stage("n1", 0, 2), stage("n7", 2, 4), stage("n3", 4, 6)},
	}
	request.Proposal.Classes[0] = append(request.Proposal.Classes[0], "n7")
	request.Holders = append(request.Holders, held("n2", 2, 4)) // about to leave, and still a source
	return request
}

func TestNodesThatMayNotTradeKeepTheirPlacesThoughMoreMovesSo(t *testing.T) {
	request := joinOfOne()
	request.Proposal.Classes = nil
	first, last := &request.Proposal.Plan.Pipelines[0].Stages[0], &request.Proposal.Plan.Pipelines[0].Stages[2]
	first.Node, last.Node = last.Node, first.Node
	restoration, err := Restore(request)
	if err != nil {
		t.Fatal(err)
	}
	stages := restoration.Plan.Pipelines[0].Stages
	if stages[0].Node != "n3" || stages[2].Node != "n1" {
		t.Errorf("the places are %+v, proposed were n3 first and n1 last", stages)
	}
}

func TestAPlaceWhoseNodeIsNotInThePlanIsRefused(t *testing.T) {
	request := joinOfOne()
	request.Proposal.Classes = nil
	request.Proposal.Plan.Pipelines[0].Stages[1].Node = "n8"
	if _, err := Restore(request); !errors.Is(err, migrate.ErrNoMatching) {
		t.Errorf("error %v, want %v", err, migrate.ErrNoMatching)
	}
}

func TestAJoiningNodeReceivesFromSeveralNeighbours(t *testing.T) {
	restoration, err := Restore(joinOfOne())
	if err != nil {
		t.Fatal(err)
	}
	from := map[string]bool{}
	for _, transfer := range restoration.Plan.Migration.Transfers {
		if transfer.To != "n7" {
			t.Fatalf("%s receives layer %d it holds", transfer.To, transfer.Unit)
		}
		for _, source := range transfer.Sources {
			from[source.Node] = true
		}
	}
	if len(from) != 2 || !from["n2"] || !from["n5"] {
		t.Fatalf("sources: %v", from)
	}
}

// Both lack four layers, whoever becomes whom.
func TestAFastNodeTakesThePlaceThatTakesLongestToFetch(t *testing.T) {
	plan := events.Plan{Nodes: members("fast", "slow"),
		Pipelines: []events.Pipeline{{Stages: []events.Stage{stage("slow", 0, 3), stage("fast", 3, 4)}}}}
	request := events.RestorationRequest{
		Negotiation: "g2", Proposal: events.Proposal{Plan: plan, Classes: [][]string{{"fast", "slow"}}},
		Units: []int64{9e6, 9e6, 9e6, 9e6}, Holders: []events.Holder{held("old", 0, 4)},
	}
	becomes := func() events.Range {
		restoration, err := Restore(request)
		if err != nil {
			t.Fatal(err)
		}
		layers, _ := restoration.Plan.Holds("fast")
		return layers
	}
	if layers := becomes(); layers.First != 3 {
		t.Fatalf("where all links are alike the proposed place will do, but the node became %v", layers)
	}
	link := events.Measurement{From: "old", To: "fast", BandwidthBytesPerSecond: 800e6}
	request.Links = []events.Link{{Measurement: link}}
	if layers := becomes(); layers.First != 0 {
		t.Fatalf("the fast node became %v", layers)
	}
}

// Both could receive fast, but who holds the three layers sends fast to one of them only.
func TestWhoIsFastButFarFromTheHoldersTakesThePlaceWithLessToFetch(t *testing.T) {
	plan := events.Plan{Nodes: members("near", "far"),
		Pipelines: []events.Pipeline{{Stages: []events.Stage{stage("far", 0, 3), stage("near", 3, 4)}}}}
	request := events.RestorationRequest{
		Negotiation: "g2", Proposal: events.Proposal{Plan: plan, Classes: [][]string{{"near", "far"}}},
		Units: []int64{9e6, 9e6, 9e6, 9e6}, Holders: []events.Holder{held("old", 0, 3), held("other", 3, 4)},
	}
	for _, link := range []events.Measurement{
		{From: "old", To: "near", BandwidthBytesPerSecond: 500e6},
		{From: "old", To: "far", BandwidthBytesPerSecond: 50e6},
		{From: "other", To: "far", BandwidthBytesPerSecond: 900e6},
	} {
		request.Links = append(request.Links, events.Link{Measurement: link})
	}
	restoration, err := Restore(request)
	if err != nil {
		t.Fatal(err)
	}
	if layers, _ := restoration.Plan.Holds("near"); layers.First != 0 {
		t.Fatalf("the node near the holder of layers 0 to 2 became %v", layers)
	}
}

// n2 has no direct link to n1, which holds all that it lacks; n3 holds the first layer.
func TestWhatADirectNeighbourHoldsDoesNotGoThroughTheHub(t *testing.T) {
	plan := events.Plan{Nodes: members("n1", "n2", "n3"), Pipelines: []events.Pipeline{
		{Stages: []events.Stage{stage("n1", 0, 2)}}, {Stages: []events.Stage{stage("n2", 0, 1), stage("n3", 1, 2)}},
	}}
	request := events.RestorationRequest{
		Negotiation: "g2", Proposal: events.Proposal{Plan: plan}, Units: []int64{9e6, 9e6},
		Holders:     []events.Holder{held("n1", 0, 2), held("n3", 0, 2)},
		Unreachable: []events.Pair{events.PairOf("n1", "n2")},
	}
	sources := func() []events.Source {
		restoration, err := Restore(request)
		if err != nil {
			t.Fatal(err)
		}
		return restoration.Plan.Migration.Transfers[0].Sources
	}
	if from := sources(); len(from) != 1 || from[0].Node != "n3" {
		t.Fatalf("layer 0 comes from %v, want n3 alone", from)
	}
	request.Holders = request.Holders[:1]
	if from := sources(); len(from) != 1 || from[0].Node != "n1" {
		t.Fatalf("layer 0 comes from %v, want n1 through the hub", from)
	}
}

func TestALayerNobodyHoldsIsRefusedByName(t *testing.T) {
	request := lossOfOne()
	request.Holders = slices.DeleteFunc(request.Holders, func(h events.Holder) bool { return h.Node == "n5" })
	if _, err := Restore(request); err == nil || err.Error() != "layer 2: no node holds it" {
		t.Fatalf("got %v", err)
	}
}

func TestNodesOutsideAClassKeepThePlacesThePlannerGaveThem(t *testing.T) {
	request := lossOfOne()
	request.Proposal.Classes = nil
	restoration, err := Restore(request)
	if err != nil {
		t.Fatal(err)
	}
	if held, _ := restoration.Plan.Holds("n3"); held.First != 0 {
		t.Fatalf("n3 was moved to %v", held)
	}
}

func TestReroutingMovesNobody(t *testing.T) {
	request := lossOfOne()
	plan := &request.Proposal.Plan
	plan.Pipelines = []events.Pipeline{
		{MicroBatches: 4, Stages: []events.Stage{stage("n1", 0, 2), stage("n2", 2, 4), stage("n3", 4, 6)}},
		{MicroBatches: 4, Stages: []events.Stage{stage("n4", 0, 2), stage("n5", 2, 4), stage("n6", 4, 6)}},
	}
	plan.Reroutes = []events.Reroute{{From: "n2", To: "n5", Stage: 1, MicroBatches: 4}}
	restoration, err := Restore(request)
	if err != nil {
		t.Fatal(err)
	}
	if restoration.BytesMoved != 0 || restoration.Plan.Pipelines[0].Stages[1].Node != "n2" {
		t.Fatalf("moved %d bytes", restoration.BytesMoved)
	}
}

func TestEachUnitComesFromOneHolderWhereHoldersAreOnlyAlike(t *testing.T) {
	request := lossOfOne()
	plan := &request.Proposal.Plan
	plan.Nodes = append(plan.Nodes, members("n7")...)
	plan.Pipelines[0] = events.Pipeline{
		MicroBatches: 3, Stages: []events.Stage{stage("n1", 0, 2), stage("n7", 2, 4), stage("n3", 4, 6)},
	}
	request.Holders = append(request.Holders, held("n2", 2, 4)) // about to leave, and still a source
	for replicas, most := range map[string]int{"": 2, events.AlikeReplicas: 1} {
		plan.Replicas = replicas
		restoration, err := Restore(request)
		if err != nil {
			t.Fatal(err)
		}
		from, sources := map[string]bool{}, 0
		for _, transfer := range restoration.Plan.Migration.Transfers {
			sources = max(sources, len(transfer.Sources))
			for _, source := range transfer.Sources {
				from[source.Node] = true
			}
		}
		if sources > most || len(from) != 2 {
			t.Errorf("replicas %q: a unit from %d holders, all from %v: expected at most %d, and both at work",
				replicas, sources, from, most)
		}
	}
}

func TestATransferTellsWhatItsLinkWasMeasuredToCarry(t *testing.T) {
	request := lossOfOne()
	for i, to := range []string{"n1", "n3", "n4", "n6"} {
		link := events.Measurement{From: "n5", To: to, BandwidthBytesPerSecond: 1e9 + float64(i)}
		back := events.Measurement{From: to, To: "n5", BandwidthBytesPerSecond: 5e9}
		request.Links = append(request.Links, events.Link{Measurement: link}, events.Link{Measurement: back})
		request.Unreachable = append(request.Unreachable, events.PairOf("n5", to))
	}
	for _, direct := range []bool{false, true} {
		if direct {
			request.Unreachable = nil
		}
		restoration, err := Restore(request)
		if err != nil {
			t.Fatal(err)
		}
		for _, transfer := range restoration.Plan.Migration.Transfers {
			want := 0.0 // through the hub
			if at := slices.Index([]string{"n1", "n3", "n4", "n6"}, transfer.To); direct {
				want = 1e9 + float64(at)
			}
			if got := transfer.Sources[0]; got.Node != "n5" || got.BytesPerSecond != want {
				t.Errorf("directly %v: %+v to %s: expected n5 with %v bytes/s", direct, got, transfer.To, want)
			}
		}
	}
}

func TestALinkThatIsNotListedIsTakenForTheUsualOne(t *testing.T) {
	request := lossOfOne()
	request.Usual = &events.Usual{RoundTripSeconds: 0.002, BandwidthBytesPerSecond: 3e8}
	for _, to := range []string{"n1", "n3", "n4", "n6"} {
		request.Unreachable = append(request.Unreachable, events.PairOf("n5", to))
	}
	for _, direct := range []bool{false, true} {
		want := 0.0 // through the hub
		if direct {
			request.Unreachable, want = nil, 3e8
		}
		restoration, err := Restore(request)
		if err != nil {
			t.Fatal(err)
		}
		for _, transfer := range restoration.Plan.Migration.Transfers {
			if got := transfer.Sources[0]; got.Node != "n5" || got.BytesPerSecond != want {
				t.Errorf("directly %v: %+v to %s: expected n5 with %v bytes/s", direct, got, transfer.To, want)
			}
		}
	}
}

// Who joins takes layers 2 and 3 of n5 and of n2, unless it could not verify what they gave it.
func TestAUnitIsTakenFromHoldersThatAreNotInDoubtOrFromOneAlone(t *testing.T) {
	for _, of := range []struct {
		doubts  []events.Doubt
		sources []string
	}{
		{nil, []string{"n2", "n5"}},
		{[]events.Doubt{{From: "n5", To: "n7", Times: 1}}, []string{"n2"}},
		{[]events.Doubt{{From: "n5", To: "n6", Times: 1}}, []string{"n2", "n5"}},
		{[]events.Doubt{{From: "n2", Times: 1}}, []string{"n5"}},
		{[]events.Doubt{{From: "n2", Times: 1}, {From: "n5", To: "n7", Times: 1}}, []string{"n5"}},
		{[]events.Doubt{{From: "n2", Times: 1}, {From: "n5", To: "n7", Times: 2}}, []string{"n2"}},
	} {
		request := joinOfOne()
		request.Doubts = of.doubts
		restoration, err := Restore(request)
		if err != nil {
			t.Fatal(err)
		}
		var from []string
		for _, transfer := range restoration.Plan.Migration.Transfers {
			for _, source := range transfer.Sources {
				from = append(from, source.Node)
			}
		}
		slices.Sort(from)
		if from = slices.Compact(from); !slices.Equal(from, of.sources) {
			t.Errorf("with doubts %+v it takes of %v, expected of %v", of.doubts, from, of.sources)
		}
	}
}

// Both links are as fast, and one of the holders is far away.
func TestFewBytesComeFromWhoeverIsNearAndManyFromAll(t *testing.T) {
	sources := func(bytes int64) int {
		request := events.RestorationRequest{
			Negotiation: "g2", Units: []int64{bytes}, Holders: []events.Holder{held("near", 0, 1), held("far", 0, 1)},
			Proposal: events.Proposal{Plan: events.Plan{Nodes: members("new"),
				Pipelines: []events.Pipeline{{Stages: []events.Stage{stage("new", 0, 1)}}}}},
		}
		for _, from := range []string{"near", "far"} {
			request.Links = append(request.Links, events.Link{Measurement: events.Measurement{
				From: from, To: "new", RoundTripSeconds: map[string]float64{"near": 0.001, "far": 0.2}[from], BandwidthBytesPerSecond: 1e8}})
		}
		restoration, err := Restore(request)
		if err != nil {
			t.Fatal(err)
		}
		return len(restoration.Plan.Migration.Transfers[0].Sources)
	}
	if few, many := sources(1e7), sources(1e9); few != 1 || many != 2 {
		t.Errorf("10 MB, that the near one gives in 0.1 s, come from %d, and 1 GB from %d", few, many)
	}
}

func TestOfAChainTheLargestShardIsTakenThatCostsHardlyAnyTime(t *testing.T) {
	request := joinOfOne()
	for unit := range request.Units {
		request.Units[unit] = 64 << 20
	}
	parts, err := Restore(request)
	if err != nil {
		t.Fatal(err)
	}
	chained, err := Settings{ShardSize: Chain}.Restore(request)
	if err != nil {
		t.Fatal(err)
	}
	before, after := parts.Plan.Migration.ShardBytes, chained.Plan.Migration.ShardBytes
	slower := chained.Plan.Predicted.TransitionSeconds / parts.Plan.Predicted.TransitionSeconds
	if after <= before || slower > 1.011 {
		t.Errorf("shards of %d bytes take %.3f times as long as shards of %d", after, slower, before)
	}
}

func TestAPairThatIsToldTwiceGoesThroughTheHubOnce(t *testing.T) {
	r := &restoration{}
	names := []string{"n1", "n2", "n3"}
	r.Unreachable = []events.Pair{events.PairOf("n1", "n2")}
	once := r.bandwidths(names)
	r.Unreachable = append(r.Unreachable, events.PairOf("n2", "n1"))
	if twice := r.bandwidths(names); !reflect.DeepEqual(once, twice) {
		t.Errorf("links carry %v, and where the pair is told again %v", once, twice)
	}
}
