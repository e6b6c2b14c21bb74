package policy

import (
	"math"
	"reflect"
	"testing"
)

func TestRerouteHasNoAnswerWhereNobodyLiveKeepsAPartition(t *testing.T) {
	s := partitioned(8)
	s.MinReplicas = 1
	s = s.inForce(grid(4, 2, 6, 12))
	if _, err := reroute(s.lose("n4")); err == nil || err.Error() != "partition 1 of layer 3: no live node holds it" {
		t.Errorf("got %v", err)
	}
	s.Empty = []string{"n5"}
	if _, err := reroute(s); err == nil || err.Error() != "partition 2 of layer 0: no live node holds it" {
		t.Errorf("got %v", err)
	}
	s.Empty, s.Current[0].Partitions = nil, []int{0, 4}
	if _, err := reroute(s); err == nil ||
		err.Error() != "pipeline 0 of the plan in force: expected some of the 4 partitions of the job, got [0 4]" {
		t.Errorf("got %v", err)
	}
}

// Four pipelines leave three holders of each layer, and of what the lost node kept of the optimizer state one.
func TestARerouteIsWeighedByTheHoldersOfPartitions(t *testing.T) {
	s := partitioned(8).inForce(grid(4, 2, 6, 12)).lose("n2")
	if rejected := of(t, "reroute", choose(t, s)); rejected.Replicas != 1 || rejected.Rejected == "" {
		t.Fatalf("%d replicas, rejected for %q", rejected.Replicas, rejected.Rejected)
	}
	if kept := of(t, "reroute", choose(t, s)).Pipelines; !reflect.DeepEqual(kept, s.Current) {
		t.Fatalf("%v became %v", s.Current, kept)
	}
}

// Who waits or comes back fetches what a node keeps, no more: two of four partitions are 30 of 60 bytes.
func TestANodeThatComesBackFetchesThePartitionsOfItsPlace(t *testing.T) {
	s := partitioned(8).inForce(grid(4, 2, 6, 12)).lose("n2")
	s.Network.BytesPerSecond, s.SecondsUntilReturn = 10, 20
	if got, want := Adaptive.Wait(s)[0].TransitionSeconds, 20+0.05+3*(80-30)/10.; math.Abs(got-want) > 1e-9 {
		t.Fatalf("back after %v s, want %v", got, want)
	}
}
