package overlay_test

import (
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine/overlay"
)

// keyOf returns a public key as a node's id looks.
func keyOf(letter string) string { return "UA" + strings.Repeat(letter, 54) }

var layer = events.LayerProfile{ParameterBytes: 1, OptimizerBytes: 1, ForwardSeconds: 1, BackwardSeconds: 1}

// joins is who asks to join, by id, with the name that it claims.
func joins(names *overlay.Names, id, name string) {
	names.Take(events.Speaker{Source: "/node/" + id, Cluster: "c"}.First(time.Now(), name, events.JoinRequested, id, &events.Join{
		Node: id, Name: name, Incarnation: "i", Address: "a:1", MemoryBytes: 1,
		Job: events.Job{Digest: events.Digest(nil), Layers: []events.LayerProfile{layer}, GlobalBatch: 1, MicroBatch: 1}}))
}

// plans commits a plan with some members.
func plans(names *overlay.Names, members ...events.Member) {
	names.Take(events.Speaker{Source: "/negotiator", Cluster: "c"}.First(time.Now(), "plan", events.PlanCommitted, "1", &events.Plan{
		Cluster: "c", Generation: 1, Policy: "repipeline", Nodes: members, Data: events.Data{GlobalBatch: 1, MicroBatch: 1},
		Pipelines: []events.Pipeline{{MicroBatches: 1, Stages: []events.Stage{{Node: members[0].Node, Layers: events.Range{End: 1}}}}},
	}))
}

func TestANodeIsShownByTheNameThatItAloneClaims(t *testing.T) {
	names := overlay.NewNames()
	joins(names, keyOf("B"), "gpu-1")
	joins(names, keyOf("C"), "gpu-2")
	joins(names, keyOf("D"), "gpu-2")
	joins(names, keyOf("E"), "")
	joins(names, keyOf("F"), keyOf("B")) // a key is nobody's name
	joins(names, keyOf("G"), "n1")       // nor is the id of another node
	joins(names, "n1", "")
	says := "failure of " + strings.Join([]string{keyOf("B"), keyOf("C"), keyOf("D"), keyOf("E"), keyOf("F"), keyOf("G"), "n1"}, ", ")
	want := "failure of gpu-1, gpu-2 (UACCCCCCCCCC…), gpu-2 (UADDDDDDDDDD…), UAEEEEEEEEEE…, UAFFFFFFFFFF…, n1 (UAGGGGGGGGGG…), n1"
	if got := names.Shown(says); got != want {
		t.Errorf("shown\n%s\nexpected\n%s", got, want)
	}
}

func TestTheBeginningOfAKeyIsNobodysName(t *testing.T) {
	names := overlay.NewNames()
	joins(names, keyOf("B"), "gpu-1")
	joins(names, keyOf("C"), keyOf("B")[:12])
	joins(names, keyOf("D"), "UAB")
	if id, err := names.Node(keyOf("B")[:12]); err != nil || id != keyOf("B") {
		t.Errorf("the beginning of the first key means %s, %v", id, err)
	}
	if got := names.Shown(keyOf("C") + " " + keyOf("D")); got != "UACCCCCCCCCC… UAB" {
		t.Errorf("shown %s", got)
	}
}

func TestANameMeansTheMemberWhoeverElseClaimsIt(t *testing.T) {
	names := overlay.NewNames()
	plans(names, events.Member{Node: keyOf("B"), Name: "gpu-1", Incarnation: "i", Address: "a:1"})
	joins(names, keyOf("C"), "gpu-1")
	if id, err := names.Node("gpu-1"); err != nil || id != keyOf("B") {
		t.Errorf("it means %s, %v", id, err)
	}
	if got := names.Shown(keyOf("B") + " " + keyOf("C")); got != "gpu-1 gpu-1 (UACCCCCCCCCC…)" {
		t.Errorf("shown %s", got)
	}
}

func TestANodeIsMeantByItsIdItsNameOrTheBeginningOfItsKey(t *testing.T) {
	names := overlay.NewNames()
	joins(names, keyOf("B"), "gpu-1")
	joins(names, keyOf("C"), "gpu-2")
	joins(names, keyOf("D"), "gpu-2")
	for meant, want := range map[string]string{
		"gpu-1": keyOf("B"), keyOf("C"): keyOf("C"), "UACC": keyOf("C"), "UADDDDDDDDDD…": keyOf("D"), "n9": "n9", "UA": "UA",
	} {
		if id, err := names.Node(meant); err != nil || id != want {
			t.Errorf("%s means %s, %v, expected %s", meant, id, err, want)
		}
	}
	if id, err := names.Node("gpu-2"); err == nil || !strings.Contains(err.Error(), keyOf("D")) {
		t.Errorf("a name that two claim means %s, %v, expected that the key is asked for", id, err)
	}
}
