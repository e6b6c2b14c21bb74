package world

import (
	"strings"
	"testing"
	"time"
)

// Seed 11319: a user has training begin anew, and one of those who start is cut off from the hub. The others wait for as many as a first
// plan is to have, as the user wants, and say so.
func TestTrainingThatBeginsAnewWaitsForAsManyNodesAsAFirstPlanHas(t *testing.T) {
	outcome := Script{
		Cluster: Cluster{Seed: 1, Nodes: 3, Layers: 3, Stages: 1},
		Faults:  []Fault{{At: firstFault, Words: "all end for 8s"}, {At: firstFault + 4*time.Second, Words: "begin anew"}},
		Stays:   "cut n1 from hub",
	}.Play(true)
	story := strings.Join(outcome.Story, "\n")
	if len(outcome.Violations) > 0 || outcome.Changes != 2 || !strings.Contains(story, "waiting for more nodes: 2 joined") {
		t.Errorf("%v\n%s", outcome, story)
	}
}
