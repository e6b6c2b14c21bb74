package plan

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
)

// partitioned is failure.yaml with optimizer state in two partitions, of which each pipeline keeps what is said.
func partitioned(t *testing.T, first, second string) string {
	t.Helper()
	return saved(t, strings.NewReplacer(
		"  layers: 6\n", "  layers: 6\n  optimizerPartitions: 2\n",
		"current:\n  - microBatches: 12\n", "current:\n  - microBatches: 12\n    partitions: "+first+"\n",
		"layers: {first: 4, end: 6}}\n  - microBatches: 12\n",
		"layers: {first: 4, end: 6}}\n  - microBatches: 12\n    partitions: "+second+"\n",
	).Replace(text(t, example("failure"))))
}

func TestWhoKeepsAPartitionCanGiveIt(t *testing.T) {
	q, err := load(partitioned(t, "[0, 1]", "[1]"))
	if err != nil {
		t.Fatal(err)
	}
	want := []events.Holder{
		{Node: "n1", Units: []events.Range{layers(0, 2), layers(6, 8), layers(12, 14)}},
		{Node: "n2", Units: []events.Range{layers(2, 4), layers(8, 10), layers(14, 16)}},
		{Node: "n3", Units: []events.Range{layers(4, 6), layers(10, 12), layers(16, 18)}},
		{Node: "n4", Units: []events.Range{layers(0, 2), layers(12, 14)}},
		{Node: "n6", Units: []events.Range{layers(4, 6), layers(16, 18)}},
	}
	if got := q.holders(); !reflect.DeepEqual(got, want) {
		t.Errorf("holders %v, expected %v", got, want)
	}
	request := q.restoration(events.Proposal{})
	if q.Request.Job.OptimizerPartitions != 2 || len(request.Units) != 18 || request.Units[0] != 400<<20 ||
		request.Units[17] != 800<<20 ||
		len(request.Gradients) != 6 {
		t.Errorf("job in %d partitions, rows of %v bytes, gradients %v", q.Request.Job.OptimizerPartitions,
			request.Units, request.Gradients)
	}
}

func TestBeforeTheFirstPlanEverybodyCanGiveEveryPartition(t *testing.T) {
	q, err := load(partitioned(t, "[0, 1]", "[1]"))
	if err != nil {
		t.Fatal(err)
	}
	q.Request.Current = nil
	for _, holder := range q.holders() {
		if !reflect.DeepEqual(holder.Units, []events.Range{layers(0, 18)}) {
			t.Errorf("%s gives %v, expected all 18 rows", holder.Node, holder.Units)
		}
	}
}

func TestWhatPipelinesKeepIsDrawnAndWhatMovesIsNamed(t *testing.T) {
	plan := events.Plan{
		Nodes: []events.Member{{Node: "n1"}, {Node: "n2"}, {Node: "n3"}},
		Pipelines: []events.Pipeline{
			{MicroBatches: 3, Stages: []events.Stage{{Node: "n1", Layers: layers(0, 3)}}, Partitions: []int{0, 1, 2}},
			{MicroBatches: 1, Stages: []events.Stage{{Node: "n2", Layers: layers(0, 3)}}, Partitions: []int{1}},
			{MicroBatches: 1, Stages: []events.Stage{{Node: "n3", Layers: layers(0, 3)}}},
		},
		Migration: events.Migration{ShardBytes: 100},
	}
	for _, row := range []int{1, 2, 7} {
		plan.Migration.Transfers = append(plan.Migration.Transfers, events.Transfer{
			Unit: row, To: "n2", Bytes: 100, Sources: []events.Source{{Node: "n1", Shards: layers(0, 1)}},
		})
	}
	var got bytes.Buffer
	Picture(&got, plan)
	moves(&got, plan)
	want := `
                 +------------+
pipeline 0       | n1         |
3 micro-batches  | layers 0-2 |
partitions 0-2   +------------+
                 +------------+
pipeline 1       | n2         |
1 micro-batch    | layers 0-2 |
partition 1      +------------+
                 +------------+
pipeline 2       | n3         |
1 micro-batch    | layers 0-2 |
no partition     +------------+
to  what                    bytes  from
n2  layers 1-2              200 B  n1 100%
    partition 1 of layer 1  100 B  n1 100%
`
	if got.String() != want[1:] {
		t.Errorf("told\n%s\nexpected\n%s", &got, want[1:])
	}
}
