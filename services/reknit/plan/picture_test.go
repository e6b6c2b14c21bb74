package plan

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
)

func layers(first, end int) events.Range { return events.Range{First: first, End: end} }

func TestALostStageIsDrawnWhereItsNodeWas(t *testing.T) {
	plan := events.Plan{
		Nodes: []events.Member{{Node: "n1"}, {Node: "n2"}, {Node: "n3"}},
		Pipelines: []events.Pipeline{
			{MicroBatches: 3,
				Stages: []events.Stage{{Node: "n1", Layers: layers(0, 1)}, {Node: "n2", Layers: layers(1, 4)}}},
			{MicroBatches: 1,
				Stages: []events.Stage{{Node: "n3", Layers: layers(0, 1)}, {Node: "n4", Layers: layers(1, 4)}}},
		},
		Reroutes: []events.Reroute{{From: "n4", To: "n2", Stage: 1, MicroBatches: 1}},
	}
	var got bytes.Buffer
	Picture(&got, plan)
	reroutes(&got, plan)
	want := `
                 +------------+   +------------+
pipeline 0       | n1         |-->| n2         |
3 micro-batches  | layer 0    |   | layers 1-3 |
                 +------------+   +------------+
                 +------------+   +------------+
pipeline 1       | n3         |-->| n4 (lost)  |
1 micro-batch    | layer 0    |   | layers 1-3 |
                 +------------+   +------------+

Rerouted
n2  takes 1 micro-batch of n4  stage 1
`
	if got.String() != want[1:] {
		t.Errorf("drew\n%s\nexpected\n%s", &got, want[1:])
	}
}

func TestALongPipelineGoesOnInTheNextRow(t *testing.T) {
	pipeline := events.Pipeline{MicroBatches: 8}
	plan := events.Plan{}
	for s := range 8 {
		node := fmt.Sprintf("node-%d", s)
		plan.Nodes = append(plan.Nodes, events.Member{Node: node})
		pipeline.Stages = append(pipeline.Stages, events.Stage{Node: node, Layers: layers(2*s, 2*s+2)})
	}
	plan.Pipelines = []events.Pipeline{pipeline}
	var got bytes.Buffer
	Picture(&got, plan)
	lines := strings.Split(strings.TrimSpace(got.String()), "\n")
	if len(lines) != 8 || !strings.HasSuffix(lines[1], "| node-3       |-->") ||
		!strings.HasSuffix(lines[5], "| node-7       |") {
		t.Errorf("drew\n%s\nexpected four boxes and an arrow, and four boxes below", &got)
	}
	for _, line := range lines {
		if len(line) > columns {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
}

func TestAPolicyWithoutABoundSaysSo(t *testing.T) {
	if got := Gap(events.Predicted{StepSeconds: 1}); got != "this policy has no lower bound" {
		t.Errorf("without a bound: %s", got)
	}
}
