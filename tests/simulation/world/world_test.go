package world

import (
	"strings"
	"testing"
)

func TestARunIsAFunctionOfItsScript(t *testing.T) {
	for seed := range uint64(10) {
		script := NewScript(seed)
		if once, again := script.Play(false), script.Play(true); once.Trace != again.Trace {
			t.Errorf("seed %d: two runs differ", seed)
		}
	}
}

func TestWhoLivesTrainsAfterEachKindOfFault(t *testing.T) {
	for _, fault := range []string{
		"kill n2", "kill n2 for 3s", "pause n2 for 10s", "hang n2 for 10s", "slow n2 4 for 5s", "restart n2 4", "leave n2",

		"start n9", "herd 4", "state of n2 takes 40 for 20s", "mute n2 for 10s", "deafen n2 for 10s",
		"full events for 10s", "full plans for 10s", "full payloads for 10s", "full memories for 10s",
		"cut n2 from hub for 10s", "cut n2 from peers for 10s", "cut n1 n2 for 10s", "link n1 n2 0.1 for 5s",
		"disconnect n1 n2", "hub away for 5s", "hub electing for 5s", "requests lost 0.2 for 5s", "answers lost 0.2 for 5s",
		"crash negotiator", "crash planner before publish 1", "depose restorer for 2s", "pause monitor for 2s",
	} {
		t.Run(strings.ReplaceAll(fault, " ", "-"), func(t *testing.T) {
			script := Script{Cluster: Cluster{Seed: 1, Nodes: 4, Layers: 4}, Faults: []Fault{{At: firstFault, Words: fault}}}
			outcome := script.Play(true)
			if len(outcome.Violations) > 0 || outcome.Held {
				t.Errorf("%v\n%s\n%v", script, strings.Join(outcome.Story, "\n"), outcome)
			}
		})
	}
}
