package plan

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
)

func layers(first, end int) events.Layers { return events.Layers{First: first, End: end} }

func TestALostStageIsDrawnWhereItsNodeWas(t *testing.T) {
	plan := events.Plan{
		Nodes: []events.Member{{Node: "n1"}, {Node: "n2"}, {Node: "n3"}},
		Pipelines: []events.Pipeline{
			{MicroBatches: 3, Stages: []events.Stage{{Node: "n1", Layers: layers(0, 1)}, {Node: "n2", Layers: layers(1, 4)}}},
			{MicroBatches: 1, Stages: []events.Stage{{Node: "n3", Layers: layers(0, 1)}, {Node: "n4", Layers: layers(1, 4)}}},
		},
		Reroutes: []events.Reroute{{From: "n4", To: "n2", Stage: 1, MicroBatches: 1}},
	}
	var got bytes.Buffer
	picture(&got, plan)
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
	picture(&got, plan)
	lines := strings.Split(strings.TrimSpace(got.String()), "\n")
	if len(lines) != 8 || !strings.HasSuffix(lines[1], "| node-3       |-->") || !strings.HasSuffix(lines[5], "| node-7       |") {
		t.Errorf("drew\n%s\nexpected four boxes and an arrow, and four boxes below", &got)
	}
	for _, line := range lines {
		if len(line) > columns {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
}

func TestALongTextGoesOnBelowItself(t *testing.T) {
	var got bytes.Buffer
	table := newTable(&got)
	row(table, "one two three four", 9, "a", "b")
	row(table, "five", 9, "c", "d")
	table.Flush()
	if want := "a  b  one two\n      three\n      four\nc  d  five\n"; got.String() != want {
		t.Errorf("wrote\n%s\nexpected\n%s", &got, want)
	}
}

func TestEqualPipelinesAndRunsOfLayersAreWrittenOnce(t *testing.T) {
	for shape, want := range map[string]string{"3": "3", "3+3": "2x3", "2+3+3+3": "2+3x3", "1+2": "1+2"} {
		if got := folded(shape); got != want {
			t.Errorf("%s is written %s, expected %s", shape, got, want)
		}
	}
	if got := ranges([]int{5, 0, 1, 2, 7, 8}); got != "0-2,5,7-8" {
		t.Errorf("layers are written %s", got)
	}
}

func TestFiguresKeepTheirUnits(t *testing.T) {
	for bytes, want := range map[int64]string{0: "0 B", 999: "999 B", 1536: "1.5 KiB", 24 << 30: "24 GiB", 5 << 50: "5.12e+03 TiB"} {
		if got := inBytes(bytes); got != want {
			t.Errorf("%d bytes are written %s, expected %s", bytes, got, want)
		}
	}
	for seconds, want := range map[float64]string{0: "0 s", 2e-6: "2 us", 0.0125: "12.5 ms", 1.5: "1.5 s", 14400: "14400 s"} {
		if got := inSeconds(seconds); got != want {
			t.Errorf("%v seconds are written %s, expected %s", seconds, got, want)
		}
	}
	if got := gap(events.Predicted{StepSeconds: 1}); got != "this policy has no lower bound" {
		t.Errorf("without a bound: %s", got)
	}
}
