package machine

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/reknit/reknit/events"
)

// partitionedRequest is a random one of a job whose optimizer state is partitioned.
func partitionedRequest(random *rand.Rand) events.PlanRequest {
	r := randomRequest(random)
	r.Job.OptimizerPartitions = 1 + random.IntN(6)
	for i := range r.Job.Layers {
		layer := &r.Job.Layers[i]
		layer.ParameterBytes, layer.OptimizerBytes = layer.ParameterBytes+1, 10+random.Int64N(200e3)
	}
	return r
}

// A proposal that is valid has a holder of each partition; a peak counts the longest list.
func TestTheProposalForAPartitionedJobIsSound(t *testing.T) {
	live(t, 40, 4, partitionedRequest, func(r events.PlanRequest, plan events.Plan) error {
		switch {
		case plan.Partitions() != r.Job.OptimizerPartitions:
			return fmt.Errorf("%d partitions, expected %d", plan.Partitions(), r.Job.OptimizerPartitions)
		case plan.Policy == "reroute":
			return nil
		case !slices.Equal(copies(plan), askedFor(r, plan)):
			return fmt.Errorf("%v pipelines keep each partition, expected %v", copies(plan), askedFor(r, plan))
		}
		return noMoreThanOnePartitionSpare(r.Job, plan)
	})
}

// copies is how many pipelines keep each partition.
func copies(plan events.Plan) []int {
	counts := make([]int, plan.Partitions())
	for _, pipeline := range plan.Pipelines {
		for _, partition := range pipeline.Partitions {
			counts[partition]++
		}
	}
	return counts
}

// askedFor is how many pipelines shall keep each.
func askedFor(r events.PlanRequest, plan events.Plan) []int {
	return slices.Repeat([]int{min(settings.MinReplicas, len(plan.Pipelines))}, r.Job.OptimizerPartitions)
}

func noMoreThanOnePartitionSpare(job events.Job, plan events.Plan) error {
	for node, peak := range plan.Predicted.PeakBytes {
		spare := int64(0)
		layers, _ := plan.Holds(node)
		for _, layer := range job.Layers[layers.First:layers.End] {
			spare += layer.OptimizerBytes/int64(job.OptimizerPartitions) + int64(job.OptimizerPartitions)
		}
		if own := ownBytes(job, plan, node); peak > own+spare {
			return fmt.Errorf("%s: peak of %d bytes, it keeps %d", node, peak, own)
		}
	}
	return nil
}

// Each of four nodes must hold all layers, and can with half of their optimizer state.
func TestAJobThatFitsOnlyInPartitionsIsPlanned(t *testing.T) {
	r := request("n1", "n2", "n3", "n4")
	r.Job.Pipelines.Min = 4
	if answer := ask(t, r); answer.Kind != events.PlanRefused {
		t.Fatalf("it fits whole: %s", answer.Data)
	}
	r.Job.OptimizerPartitions = 4
	plan := proposed(t, r).Plan
	var lists [][]int
	for _, pipeline := range plan.Pipelines {
		lists = append(lists, pipeline.Partitions)
	}
	if got := fmt.Sprint(lists); got != "[[0 1] [2 3] [0 1] [2 3]]" ||
		plan.Predicted.PeakBytes["n1"] != 6*(40e3+40e3+40e3+1e3) {
		t.Fatalf("%s with peaks %v", got, plan.Predicted.PeakBytes)
	}
}

// A plug-in that is better than ours names partitions, of a job that has some or none.
func TestWhateverPartitionsAPluginNamesThoseOfItsPlanAreOurs(t *testing.T) {
	ours := settings
	ours.Policy = hesitant(t)
	for partitions, want := range map[int]string{0: "[[] []]", 3: "[[0 1 2] [0 1 2]]"} {
		r := afterALoss()
		r.Job.OptimizerPartitions = partitions
		theirs := afterALoss()
		proposal, err := New(settings).Plan(theirs)
		if err != nil {
			t.Fatal(err)
		}
		for p := range proposal.Plan.Pipelines {
			proposal.Plan.Pipelines[p].Partitions = []int{p + 1, 0, 70}
		}
		data, err := json.Marshal(proposal)
		if err != nil {
			t.Fatal(err)
		}
		taken, err := New(ours).Plan(r, Reply{Plugin: "theirs", Data: data})
		if err != nil || taken.Plan.Policy != "theirs" {
			t.Fatalf("%+v, %v", taken, err)
		}
		if got := fmt.Sprint([][]int{taken.Plan.Pipelines[0].Partitions,
			taken.Plan.Pipelines[1].Partitions}); got != want {
			t.Errorf("%d partitions: %s, want %s", partitions, got, want)
		}
	}
}
