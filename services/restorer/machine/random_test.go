package machine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/restorer/replicate"
)

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
