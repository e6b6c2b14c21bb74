package agentd

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine/overlay"
)

func TestTheScriptOfACommandIsThePythonFileThatItRuns(t *testing.T) {
	for command, expected := range map[string]string{
		"python -u /home/a/train.py --config node1.yaml":      "train.py",
		"accelerate launch --config_file node0.yaml train.py": "train.py",
		"python -m train last.py":                             "",
		"./train --config node1.yaml":                         "",
	} {
		if script := scriptOf(strings.Fields(command)); script != expected {
			t.Errorf("%s: expected %q, got %q", command, expected, script)
		}
	}
}

func TestTheJobOfAScriptThatIsNotChangedIsKnownToTellNoSteps(t *testing.T) {
	known := overlay.New()
	request := &events.PlanRequest{Negotiation: "g", Cluster: "c", Generation: 1, Job: standInJob("train.py"), Nodes: []events.Device{
		{Member: events.Member{Node: "n1", Incarnation: "i", Address: "a:1"}, MemoryBytes: memoryBytes, SpeedFactor: 1}}}
	known.Take(events.Speaker{Source: "/negotiator", Cluster: "c"}.First(time.Now(), "1", events.PlanRequested, "g", request))
	if !known.Stepless() {
		t.Error("its steps are told as if they were the script's")
	}
}

// A script fences its own writes by the plan's number: a frozen one goes on after others went on without it.
func TestAScriptKnowsTheGenerationOfItsPlan(t *testing.T) {
	u := &unchanged{place: place{generation: 12}}
	if environment := u.environment(); !slices.Contains(environment, "REKNIT_GENERATION=12") {
		t.Errorf("it has %q", environment)
	}
}
