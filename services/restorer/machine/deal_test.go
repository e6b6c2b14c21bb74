package machine

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
)

// partition cuts the optimizer state of a request's layers: every partition is kept by some pipeline, and held by some
// node.
func partition(random *rand.Rand, request *events.RestorationRequest, partitions int) {
	layers, pipelines := len(request.Units), request.Proposal.Plan.Pipelines
	for z := range partitions {
		for _, p := range random.Perm(len(pipelines))[:1+random.IntN(len(pipelines))] {
			pipelines[p].Partitions = append(pipelines[p].Partitions, z)
		}
		for range layers {
			request.Units = append(request.Units, 1+random.Int64N(1<<20))
		}
		for h, holder := range request.Holders {
			if held := holder.Units[0]; h == 0 || random.IntN(2) == 0 {
				first := (1 + z) * layers
				request.Holders[h].Units = append(request.Holders[h].Units,
					events.Range{First: first + held.First, End: first + held.End})
			}
		}
	}
}

// Four pipelines of one stage kept two of four partitions each; n3 is lost.
func lossOfPartitions() events.RestorationRequest {
	names := []string{"n1", "n2", "n4"}
	plan := events.Plan{Cluster: "c", Generation: 2, Parent: "p", Nodes: members(names...),
		Data: events.Data{GlobalBatch: 3, MicroBatch: 1}}
	request := events.RestorationRequest{Negotiation: "g2"}
	for i, partitions := range [][]int{{1, 2, 3}, {0, 1}, {0, 2, 3}} {
		plan.Pipelines = append(plan.Pipelines, events.Pipeline{
			MicroBatches: 1, Stages: []events.Stage{stage(names[i], 0, 3)}, Partitions: partitions,
		})
	}
	for node, rows := range map[string]events.Range{"n1": {First: 3, End: 9}, "n2": {First: 9, End: 15},
		"n4": {First: 9, End: 15}} {
		request.Holders = append(request.Holders, events.Holder{Node: node, Units: []events.Range{{End: 3}, rows}})
	}
	request.Units = append(slices.Repeat([]int64{50}, 3), slices.Repeat([]int64{100}, 12)...)
	request.Gradients = []int64{50, 50, 50}
	request.Proposal = events.Proposal{Negotiation: "g2", Plan: plan, Classes: [][]string{names}}
	return request
}

func TestPartitionsThatAreLostComeFromThePipelinesThatKeepThem(t *testing.T) {
	for name, classes := range map[string][][]string{"nodes may trade places": {{"n1", "n2", "n4"}},
		"only partitions may": nil} {
		request := lossOfPartitions()
		request.Proposal.Classes = classes
		restoration, err := Restore(request)
		if err != nil {
			t.Fatal(err)
		}
		if err := restoration.Validate(); err != nil {
			t.Fatal(err)
		}
		if moves := restoration.Plan.Migration.Moves; len(moves) != 3 {
			t.Errorf("%s: moves %+v: expected that of every node, for there was no plan before", name, moves)
		}
		// n1 keeps 0 and 1, and of the others one lacks 0 and one lacks 1.
		var moved []string
		for _, transfer := range restoration.Plan.Migration.Transfers {
			if transfer.To == "n1" || len(transfer.Sources) != 1 || transfer.Sources[0].Node != "n1" {
				t.Errorf("%s: layer %d goes to %s from %v", name, transfer.Unit, transfer.To, transfer.Sources)
			}
			moved = append(moved, events.UnitName(transfer.Unit, 3))
		}
		slices.Sort(moved)
		if got := strings.Join(moved,
			", "); got != "partition 0 of layer 0, partition 0 of layer 1, partition 0 of layer 2, "+
			"partition 1 of layer 0, partition 1 of layer 1, partition 1 of layer 2" || restoration.BytesMoved != 600 {
			t.Errorf("%s: %d bytes moved: %s", name, restoration.BytesMoved, got)
		}
	}
}

func TestWhoHoldsTheProposedPlaceKeepsIt(t *testing.T) {
	request := events.RestorationRequest{
		Negotiation: "g2", Units: slices.Repeat([]int64{100}, 15), Gradients: []int64{1, 1, 1},
	}
	plan := &request.Proposal.Plan
	plan.Cluster, plan.Generation, plan.Parent, plan.Data = "c", 2, "p", events.Data{GlobalBatch: 4, MicroBatch: 1}
	var names []string
	for p, partitions := range [][]int{{0, 1}, {2, 3}, {0, 1}, {2, 3}} {
		pipeline := events.Pipeline{MicroBatches: 1, Partitions: partitions}
		for s := range 3 {
			name := fmt.Sprintf("n%d", 7*(3*p+s)%12) // in another order than the places
			pipeline.Stages, names = append(pipeline.Stages, stage(name, s, s+1)), append(names, name)
		}
		plan.Pipelines = append(plan.Pipelines, pipeline)
	}
	plan.Nodes = members(slices.Sorted(slices.Values(names))...)
	for _, name := range names {
		request.Holders = append(request.Holders, events.Holder{Node: name, Units: plan.UnitsOf(name)})
	}
	request.Proposal.Classes = [][]string{names}
	restoration, err := Restore(request)
	if err != nil {
		t.Fatal(err)
	}
	for p, pipeline := range restoration.Plan.Pipelines {
		if !slices.Equal(pipeline.Stages, plan.Pipelines[p].Stages) || restoration.BytesMoved > 0 {
			t.Errorf("pipeline %d is %v: expected %v as proposed, %d bytes move", p, pipeline.Stages,
				plan.Pipelines[p].Stages, restoration.BytesMoved)
		}
	}
}

func TestWhoGetsAnotherPartitionMovesThoughItsLayersStay(t *testing.T) {
	request := lossOfPartitions()
	before := request.Proposal.Plan
	before.Pipelines = clonePipelines(before.Pipelines)
	for p, partitions := range [][]int{{0, 1}, {2, 3}, {2, 3}} {
		before.Pipelines[p].Partitions = partitions
	}
	request.Current, request.Proposal.Classes = &before, nil
	restoration, err := Restore(request)
	if err != nil {
		t.Fatal(err)
	}
	var moved []string
	for _, move := range restoration.Plan.Migration.Moves {
		moved = append(moved, restoration.Plan.Pipelines[move.Becomes.Pipeline].Stages[0].Node)
	}
	if !slices.Equal(moved, []string{"n2", "n4"}) {
		t.Errorf("%q move: expected who keeps a third partition now", moved)
	}
}

func TestAPartitionThatNobodyHoldsIsNamed(t *testing.T) {
	request := lossOfPartitions()
	request.Holders = slices.DeleteFunc(request.Holders, func(holder events.Holder) bool { return holder.Node == "n1" })
	if _, err := Restore(request); err == nil || !strings.Contains(err.Error(), "no node holds it") ||
		!strings.Contains(err.Error(), "partition 0 of layer 0") &&
			!strings.Contains(err.Error(), "partition 1 of layer 0") {
		t.Errorf("error is %v", err)
	}
}

// The twin deals the lists in every order.
func TestNoOtherDealOfThePartitionsMovesFewerBytes(t *testing.T) {
	spared := 0
	for seed := range uint64(400) {
		request := randomRequest(rand.New(rand.NewPCG(seed, 8)))
		if request.Proposal.Plan.Partitions() == 0 {
			continue
		}
		result, err := Restore(request)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		checker := &restoration{RestorationRequest: request, plan: result.Plan}
		checker.plan.Pipelines = clonePipelines(result.Plan.Pipelines)
		permuted(len(checker.plan.Pipelines), func(order []int) {
			for p, from := range order {
				checker.plan.Pipelines[p].Partitions = result.Plan.Pipelines[from].Partitions
			}
			if bytes := checker.lacked(); bytes < result.BytesMoved {
				t.Fatalf("seed %d: %d bytes move; with the lists in the order %v it is %d", seed, result.BytesMoved,
					order, bytes)
			} else if bytes > result.BytesMoved {
				spared++
			}
		})
	}
	if spared == 0 {
		t.Error("how partitions are dealt never made a difference")
	}
}

// permuted calls try with every order of 0 to n-1.
func permuted(n int, try func(order []int)) {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	var place func(at int)
	place = func(at int) {
		if at == n {
			try(order)
			return
		}
		for i := at; i < n; i++ {
			order[at], order[i] = order[i], order[at]
			place(at + 1)
			order[at], order[i] = order[i], order[at]
		}
	}
	place(0)
}

func TestReplicasOfAPartitionAreComparedAmongWhoKeepsIt(t *testing.T) {
	request := lossOfPartitions()
	request.Proposal.Classes = nil
	for p, partitions := range [][]int{{0, 1}, {0, 2, 3}, {1, 2, 3}} {
		request.Proposal.Plan.Pipelines[p].Partitions = partitions
	}
	m := New("c", Settings{})
	hear(t, m, events.RestorationAsked, &request)
	plan := m.state.Planned.Compare
	for row, want := range []string{"n1 n2 n4", "", "", "n1 n2", "", "", "n1 n4", "", "", "n2 n4", "", "", "n2 n4"} {
		if got := strings.Join(plan.Holders[row], " "); want != "" && got != want {
			t.Errorf("%s is compared at %s: expected %s", events.UnitName(row, 3), got, want)
		}
	}
}

// The twin matches nodes with places under every deal of the lists.
func TestMatchingDealingAndTradingSeldomMoveMoreThanTheBestOfAllAtOnce(t *testing.T) {
	more := 0
	for seed, tried := uint64(0), 0; tried < 1000; seed++ {
		request := randomRequest(rand.New(rand.NewPCG(seed, 11)))
		if request.Proposal.Plan.Partitions() == 0 || len(request.Proposal.Plan.Pipelines) == 1 {
			continue
		}
		tried++
		result, err := Restore(request)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		least := int64(math.MaxInt64)
		proposed := request.Proposal.Plan.Pipelines
		permuted(len(proposed), func(order []int) {
			r := &restoration{RestorationRequest: request, plan: request.Proposal.Plan}
			r.plan.Pipelines = clonePipelines(proposed)
			for p, from := range order {
				r.plan.Pipelines[p].Partitions = proposed[from].Partitions
			}
			if err := r.match(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			least = min(least, r.lacked())
		})
		if result.BytesMoved < least {
			t.Fatalf("seed %d: %d bytes move, and %d is the least possible", seed, result.BytesMoved, least)
		}
		if result.BytesMoved > least {
			more++
		}
	}
	if more > 2 {
		t.Errorf("more than the least possible moved %d times of 1000, 2 are known", more)
	}
}
