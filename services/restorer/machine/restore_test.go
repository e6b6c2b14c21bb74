package machine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/restorer/replicate"
)

func stage(node string, first, end int) events.Stage {
	return events.Stage{Node: node, Layers: events.Range{First: first, End: end}}
}

func members(names ...string) []events.Member {
	var list []events.Member
	for _, name := range names {
		list = append(list, events.Member{Node: name, Incarnation: "a", Address: name + ":1"})
	}
	return list
}

func held(node string, first, end int) events.Holder {
	return events.Holder{Node: node, Units: []events.Range{{First: first, End: end}}}
}

// n2 of 2 x 3 is lost. n1 and n3 keep a part of what they held, and only the missing layer moves.
func lossOfOne() events.RestorationRequest {
	names := []string{"n1", "n3", "n4", "n5", "n6"}
	plan := events.Plan{
		Cluster: "c", Generation: 2, Parent: "p", Nodes: members(names...),
		Data: events.Data{GlobalBatch: 8, MicroBatch: 1},
		Pipelines: []events.Pipeline{
			{MicroBatches: 3, Stages: []events.Stage{stage("n3", 0, 3), stage("n1", 3, 6)}},
			{MicroBatches: 5, Stages: []events.Stage{stage("n4", 0, 2), stage("n5", 2, 4), stage("n6", 4, 6)}},
		},
	}
	return events.RestorationRequest{
		Negotiation: "g2", Proposal: events.Proposal{Negotiation: "g2", Plan: plan, Classes: [][]string{names}},
		Holders: []events.Holder{
			held("n1", 0, 2), held("n3", 4, 6), held("n4", 0, 2), held("n5", 2, 4), held("n6", 4, 6),
		},
		Units: []int64{9000, 9000, 9000, 9000, 9000, 9000},
	}
}

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

func TestAJoiningNodeReceivesFromSeveralNeighbours(t *testing.T) {
	request := lossOfOne()
	plan := &request.Proposal.Plan
	plan.Nodes = append(plan.Nodes, members("n7")...)
	plan.Pipelines[0] = events.Pipeline{
		MicroBatches: 3, Stages: []events.Stage{stage("n1", 0, 2), stage("n7", 2, 4), stage("n3", 4, 6)},
	}
	request.Proposal.Classes[0] = append(request.Proposal.Classes[0], "n7")
	request.Holders = append(request.Holders, held("n2", 2, 4)) // about to leave, and still a source
	restoration, err := Restore(request)
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

// The twin tries every way to hand out the places, and has each node fetch alone.
func TestNoOtherAssignmentMovesFewerBytesOrAsManySooner(t *testing.T) {
	moved, later := 0, 0
	for seed := range uint64(400) {
		request := randomRequest(rand.New(rand.NewPCG(seed, 6)))
		random := rand.New(rand.NewPCG(seed, 7))
		withRandomLinks(random, &request)
		if len(request.Proposal.Plan.Nodes) > 5 {
			continue
		}
		restoration, err := Restore(request)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		bytes, alone := fetchingAlone(t, request, restoration.Plan)
		seconds := slowest(alone)
		plan := request.Proposal.Plan
		plan.Pipelines = clonePipelines(plan.Pipelines)
		everyAssignment(&plan, 0, func() {
			otherBytes, alone := fetchingAlone(t, request, plan)
			otherSeconds := slowest(alone)
			if otherBytes < bytes || otherBytes == bytes && otherSeconds < seconds*(1-1e-3) {
				t.Fatalf("seed %d: %d bytes in %v s, another assignment %d in %v", seed, bytes, seconds, otherBytes,
					otherSeconds)
			}
			if otherBytes == bytes && otherSeconds > seconds*1.01 {
				later++
			}
		})
		moved += int(bytes)
	}
	if moved == 0 || later == 0 {
		t.Fatal("time never told two assignments of as many bytes apart, so nothing was tried")
	}
}

// withRandomLinks measures every link, so that some are ten times as fast as others.
func withRandomLinks(random *rand.Rand, request *events.RestorationRequest) {
	names := []string{"old"}
	for _, node := range request.Proposal.Plan.Nodes {
		names = append(names, node.Node)
	}
	for _, from := range names {
		for _, to := range names {
			if from != to {
				rate := 1e6 * (1 + 9*random.Float64())
				request.Links = append(request.Links,
					events.Link{Measurement: events.Measurement{From: from, To: to, BandwidthBytesPerSecond: rate}})
			}
		}
	}
}

// everyAssignment tries all orders of the nodes in the plan's places from the given one on.
func everyAssignment(plan *events.Plan, from int, try func()) {
	var places []*events.Stage
	for p := range plan.Pipelines {
		for s := range plan.Pipelines[p].Stages {
			places = append(places, &plan.Pipelines[p].Stages[s])
		}
	}
	if from == len(places) {
		try()
		return
	}
	for i := from; i < len(places); i++ {
		places[from].Node, places[i].Node = places[i].Node, places[from].Node
		everyAssignment(plan, from+1, try)
		places[from].Node, places[i].Node = places[i].Node, places[from].Node
	}
}

// fetchingAlone is what the nodes fetch for their places in the plan, and the seconds that each takes when only it
// does.
func fetchingAlone(t *testing.T, request events.RestorationRequest, plan events.Plan) (int64, map[string]float64) {
	t.Helper()
	r := &restoration{RestorationRequest: request, plan: plan}
	fetch, names, err := r.lacking()
	if err != nil {
		t.Fatal(err)
	}
	r.rates(&fetch, names)
	fetch.ShardBytes = 64
	needs, bytes, seconds := fetch.Needs, int64(0), map[string]float64{}
	for node, name := range names {
		fetch.Needs = slices.DeleteFunc(slices.Clone(needs),
			func(need replicate.Need) bool { return need.Node != node })
		if len(fetch.Needs) == 0 {
			continue
		}
		for _, need := range fetch.Needs {
			bytes += fetch.LayerBytes[need.Layer]
		}
		fetched, err := replicate.PlanFetch(fetch)
		if err != nil {
			t.Fatal(err)
		}
		seconds[name] = fetched.Seconds
	}
	return bytes, seconds
}

func slowest(seconds map[string]float64) float64 {
	longest := 0.0
	for _, took := range seconds {
		longest = max(longest, took)
	}
	return longest
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

// Every layer that a node needs and lacks comes whole from nodes that hold it, and every layer is in one group.
func TestWhateverIsAskedEveryNodeGetsWhatItLacksFromHolders(t *testing.T) {
	for seed := range uint64(300) {
		request := randomRequest(rand.New(rand.NewPCG(seed, 3)))
		result, err := Restore(request)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if err := result.Validate(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		r := &result
		checker := &restoration{RestorationRequest: request}
		for _, node := range r.Plan.Nodes {
			for layer := range events.Each(r.Plan.UnitsOf(node.Node)) {
				comes := slices.ContainsFunc(r.Plan.Migration.Transfers,
					func(t events.Transfer) bool { return t.To == node.Node && t.Unit == layer })
				if comes == checker.holds(node.Node, layer) {
					t.Fatalf("seed %d: %s, layer %d: comes %v, held %v", seed, node.Node, layer, comes, !comes)
				}
			}
		}
		for _, transfer := range r.Plan.Migration.Transfers {
			for _, source := range transfer.Sources {
				if !checker.holds(source.Node, transfer.Unit) {
					t.Fatalf("seed %d: %s gives layer %d that it does not hold", seed, source.Node, transfer.Unit)
				}
			}
		}
	}
}

// The twin plans each node's fetch with the others' needs left out, in whole shards.
func TestEachNodeFetchesAsLongAsItsFetchPlannedAloneTakes(t *testing.T) {
	fetched := 0
	for seed := range uint64(100) {
		request := randomRequest(rand.New(rand.NewPCG(seed, 4)))
		withRandomLinks(rand.New(rand.NewPCG(seed, 5)), &request)
		result, err := Restore(request)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		got, err := FetchSeconds(request, result.Plan)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		bytes, want := fetchingAlone(t, request, result.Plan)
		if len(got) != len(want) || bytes != result.BytesMoved {
			t.Fatalf("seed %d: %v fetch of %d bytes moved, expected %v", seed, got, result.BytesMoved, want)
		}
		for node, seconds := range want {
			if fetched++; got[node] > seconds*(1+1e-9) || got[node] < seconds*(1-1e-2) {
				t.Errorf("seed %d: %s fetches for %v s, planned alone %v", seed, node, got[node], seconds)
			}
		}
		if alone, all := slowest(got), result.Plan.Predicted.TransitionSeconds; alone > all*(1+1e-9) {
			t.Errorf("seed %d: a node takes %v s alone, all together %v", seed, alone, all)
		}
	}
	if fetched == 0 {
		t.Fatal("nobody fetched anything, so nothing was tried")
	}
}

func randomRequest(random *rand.Rand) events.RestorationRequest {
	layerCount := 4 + random.IntN(6)
	request := events.RestorationRequest{Negotiation: "g2"}
	plan := events.Plan{Cluster: "c", Generation: 2, Parent: "p"}
	var names []string
	for p := range 1 + random.IntN(3) {
		stages := 1 + random.IntN(min(4, layerCount))
		pipeline := events.Pipeline{MicroBatches: 1 + random.IntN(3)}
		for s := range stages {
			name := fmt.Sprintf("p%ds%d", p, s)
			names = append(names, name)
			pipeline.Stages = append(pipeline.Stages, stage(name, s*layerCount/stages, (s+1)*layerCount/stages))
		}
		plan.Pipelines = append(plan.Pipelines, pipeline)
		plan.Data.GlobalBatch += pipeline.MicroBatches
	}
	plan.Data.MicroBatch = 1
	plan.Nodes = members(names...)
	request.Holders = []events.Holder{held("old", 0, layerCount)} // nothing is lost
	for _, name := range names {
		if first := random.IntN(layerCount); random.IntN(3) > 0 {
			request.Holders = append(request.Holders, held(name, first, first+1+random.IntN(layerCount-first)))
		}
	}
	for range layerCount {
		request.Units = append(request.Units, 1+random.Int64N(1<<20))
	}
	request.Proposal = events.Proposal{Negotiation: "g2", Plan: plan, Classes: [][]string{names}}
	if random.IntN(2) == 0 {
		partition(random, &request, 1+random.IntN(4))
	}
	return request
}

func hear[P events.Payload](t *testing.T, m *Machine, kind events.Kind, payload P) []events.Event {
	t.Helper()
	speaker := events.Speaker{Source: "/test", Cluster: "c"}
	event := speaker.First(time.Unix(1, 0), fmt.Sprint(payload), kind, "s", payload)
	said, err := m.Handle(event)
	if err != nil {
		t.Fatal(err)
	}
	snapshot, err := m.Snapshot()
	if err == nil {
		err = m.Restore(snapshot) // a restart after each event changes nothing
	}
	if err != nil {
		t.Fatal(err)
	}
	return said
}
