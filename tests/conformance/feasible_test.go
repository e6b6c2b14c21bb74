package main

import (
	"strings"
	"testing"

	"github.com/reknit/reknit/services/planner/estimate"
	"github.com/reknit/reknit/services/planner/search"
	"github.com/reknit/reknit/services/restorer/replicate"
	"github.com/reknit/reknit/tests/papers/chaos"
	"github.com/reknit/reknit/tests/papers/schedule"
)

// fault is a solution that is not feasible, and a part of what must be said of it; empty where it is feasible.
type fault struct {
	err  error
	says string
}

func expectFaults(t *testing.T, faults []fault) {
	t.Helper()
	for i, fault := range faults {
		if fault.err == nil && fault.says != "" || fault.err != nil &&
			(fault.says == "" || !strings.Contains(fault.err.Error(), fault.says)) {
			t.Errorf("%d: expected %q, got %v", i, fault.says, fault.err)
		}
	}
}

func TestAPlaceTakenTwiceOrLeftEmptyIsNoMatching(t *testing.T) {
	expectFaults(t, []fault{
		{once([]int{1, 0}, 2), ""},
		{once([]int{0, -1}, 1), ""},
		{once([]int{0, 0}, 2), "taken"},
		{once([]int{0, 2}, 2), "no place"},
		{once([]int{0, -1}, 2), "left empty"},
	})
}

func TestShardsThatDoNotAddUpAreNoDistribution(t *testing.T) {
	neighbours := []chaos.Neighbour{{ShardNanoseconds: 1}, {ShardNanoseconds: 1}}
	finishOf := func(shards, least int64, counts ...int64) error {
		_, err := finish(neighbours, counts, shards, least)
		return err
	}
	expectFaults(t, []fault{
		{finishOf(3, 1, 1, 2), ""},
		{finishOf(3, 1, 0, 3), "at least 1"},
		{finishOf(3, 0, -1, 4), "at least 0"},
		{finishOf(3, 0, 1, 1), "expected 3 shards, got 2"},
		{finishOf(1, 0, 1), "each neighbour"},
	})
}

func TestAFetchWithGapsOrStrangersIsNoSchedule(t *testing.T) {
	in := fetchInput{
		LayerBytes: []int64{10}, Holders: [][]int{{0, 1}}, Needs: []replicate.Need{{Node: 2}},
		Egress: []float64{1, 1, 1}, Ingress: []float64{1, 1, 1},
	}
	secondsOf := func(sources ...replicate.Source) error {
		_, err := in.seconds([][]replicate.Source{sources})
		return err
	}
	_, missing := in.seconds(nil)
	expectFaults(t, []fault{
		{secondsOf(replicate.Source{Node: 0, End: 4}, replicate.Source{Node: 1, First: 4, End: 10}), ""},
		{secondsOf(replicate.Source{Node: 0, End: 4}, replicate.Source{Node: 1, First: 5, End: 10}), "from 4 on"},
		{secondsOf(replicate.Source{Node: 2, End: 10}), "a holder of layer 0"},
		{secondsOf(replicate.Source{Node: 0, End: 4}), "4 of 10 bytes"},
		{missing, "sources for 1 needs"},
	})
}

func TestADeviceWithTwoItemsAtATimeIsNoSchedule(t *testing.T) {
	devices := [][]int{{0, 1}}
	makespanOf := func(pieces ...schedule.Piece) error {
		_, err := makespan(pieces, []int64{2, 1}, devices)
		return err
	}
	expectFaults(t, []fault{
		{proper([]int{0, 1}, devices), ""},
		{proper([]int{1, 1}, devices), "in round 1"},
		{makespanOf(schedule.Piece{Item: 1, End: 1}, schedule.Piece{Start: 1, End: 3}), ""},
		{makespanOf(schedule.Piece{Item: 1, End: 1}, schedule.Piece{Start: 0, End: 2}), "at a time"},
		{makespanOf(schedule.Piece{Item: 1, End: 1}, schedule.Piece{Start: 1, End: 2}), "lacks 1"},
	})
}

func TestAPlanOutsideTheLimitsIsNoPlan(t *testing.T) {
	problem := search.Problem{
		Nodes: 2, NodeMemoryBytes: 3,
		Layers: equal(2, estimate.Layer{ForwardSeconds: 1, StaticBytes: 1, ActivationBytes: 1}), MicroBatches: 2,
		DataParallel: search.Limits{Least: 1, Most: 1}, PipelineLength: search.Limits{Least: 1, Most: 2},
		EveryNode: true, Splits: search.Even,
	}
	member := func(microBatches int, ends ...int) estimate.Member {
		m := estimate.Member{MicroBatches: microBatches}
		first := 0
		for _, end := range ends {
			m.Stages = append(m.Stages, estimate.Range{First: first, End: end})
			first = end
		}
		return m
	}
	stepOf := func(members ...estimate.Member) error {
		_, err := step(problem, search.Plan{Pipelines: members})
		return err
	}
	roomy := problem
	roomy.EveryNode, roomy.NodeMemoryBytes, roomy.Layers = false, 0, equal(3, estimate.Layer{})
	expectFaults(t, []fault{
		{stepOf(member(2, 1, 2)), ""},
		{stepOf(member(1, 2), member(1, 2)), "2 pipelines"},
		{stepOf(member(2, 2)), "1 nodes of 2"},
		{stepOf(member(1, 1, 2)), "1 micro-batches of 2"},
		{stepOf(member(0, 1, 2)), "0 micro-batches"},
		{fits(problem, member(2, 2)), "4 bytes of 3"},
		{fits(problem, member(2, 0, 2)), "stage 0: expected 1 to 1 layers"},
		{fits(problem, member(2, 1)), "expected 2 to 2 layers"},
		{fits(roomy, member(2, 1, 2)), "2 layers of 3"},
		{fits(roomy, member(2, 1, 2, 3)), "on 3 stages"},
	})
}
