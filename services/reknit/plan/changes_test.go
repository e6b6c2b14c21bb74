package plan

import (
	"bytes"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
)

// started is a node and which of its processes it is.
func started(node, incarnation string) events.Member {
	return events.Member{Node: node, Incarnation: incarnation}
}

func onePlace(node string, partitions ...int) events.Pipeline {
	return events.Pipeline{
		MicroBatches: 1, Stages: []events.Stage{{Node: node, Layers: layers(0, 3)}}, Partitions: partitions,
	}
}

// n1 gives its place to n2, n3 begins anew, n4 comes, n5 keeps another partition, and n6 keeps what it had.
func TestWhoBecomesWhomIsToldOfAllWhoKeepSomethingElse(t *testing.T) {
	current := events.Plan{Pipelines: []events.Pipeline{
		onePlace("n1", 0, 1), onePlace("n3", 0), onePlace("n5", 1), onePlace("n6", 0),
	}}
	plan := events.Plan{Pipelines: []events.Pipeline{
		onePlace("n2", 0, 1), onePlace("n3", 0), onePlace("n6", 0), onePlace("n5", 0),
	}}
	q := Question{Request: events.PlanRequest{Current: &current}}
	for _, node := range []string{"n1", "n2", "n3", "n5", "n6"} {
		current.Nodes = append(current.Nodes, started(node, "1"))
		plan.Nodes = append(plan.Nodes, started(node, map[bool]string{true: "2", false: "1"}[node == "n3"]))
	}
	plan.Nodes = append(plan.Nodes, started("n4", "1"))
	for _, member := range plan.Nodes {
		q.Request.Nodes = append(q.Request.Nodes, events.Device{Member: member})
	}
	plan.Migration.Transfers = []events.Transfer{{Unit: 0, To: "n2", Bytes: 100}, {Unit: 1, To: "n2", Bytes: 50}}
	var got bytes.Buffer
	changes(&got, q, plan, map[string]float64{"n2": 1.5})
	want := `
node  was                  kept                        becomes              fetches  in
n1    pipeline 0, stage 0  layers 0-2, partitions 0-1  spare                0 B      0 s
n2    spare                -                           pipeline 0, stage 0  150 B    1.5 s
n3    new                  -                           pipeline 1, stage 0  0 B      0 s
n5    pipeline 2, stage 0  layers 0-2, partition 1     pipeline 3, stage 0  0 B      0 s
n4    new                  -                           spare                0 B      0 s
`
	if got.String() != want[1:] {
		t.Errorf("told\n%s\nexpected\n%s", &got, want[1:])
	}
}

func TestWhereEverybodyKeepsWhatItHadNobodyIsListed(t *testing.T) {
	q, err := load(example("failure"))
	if err != nil {
		t.Fatal(err)
	}
	q.Request.Changes, q.Request.Nodes = nil, q.before
	var got bytes.Buffer
	if changes(&got, q, *q.Request.Current, nil); got.String() != "  none\n" {
		t.Errorf("told\n%s\nexpected that nobody changes", &got)
	}
}

func TestANodeStartedAnewFetchesAllThatItsPlaceNeeds(t *testing.T) {
	q, err := load(example("failure"))
	if err != nil {
		t.Fatal(err)
	}
	q.Request.Changes, q.Request.Nodes = nil, q.before
	q.Request.Nodes[0].Incarnation = "2"
	answer, err := q.answer()
	if err != nil {
		t.Fatal(err)
	}
	held, _ := answer.Plan.Holds("n1")
	if want := int64(held.Count()) * 2000 << 20; answer.BytesMoved < want || want == 0 {
		t.Errorf("%d bytes move, expected no less than the %d of n1's %d layers", answer.BytesMoved, want, held.Count())
	}
	if report := told(t, q, answer); !strings.Contains(report, "\nn1    new ") {
		t.Errorf("expected that n1 is new in\n%s", report)
	}
}

func TestAFirstPlanChangesNobodysPlace(t *testing.T) {
	if report := printed(t, "--file", example("opticks")); strings.Contains(report, "Changes of place") {
		t.Errorf("expected no word of changes in\n%s", report)
	}
}
