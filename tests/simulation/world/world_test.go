package world

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
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
		"kill n2", "kill n2 for 3s", "pause n2 for 10s", "hang n2 for 10s", "hang n2 between steps for 10s", "slow n2 4 for 5s", "restart n2 4",
		"leave n2", "leave n2 within 5", "again negotiation.opened", "again negotiation.consented",
		"again membership.join-requested", "again plan.proposed",

		"script of n2 ends", "script of n2 ends for 20s", "script of n2 is gone", "script of n2 rests 61 for 10s",
		"scripts end 3 steps on for 5s", "sample 3 steps on is bad for 10s",
		"rename n2 3", "withhold n2 negotiation.consented for 30s", "withhold n2 shard.offered for 30s",
		"break n2", "break n2 for 10s", "exit n2", "exit n2 for 3s", "kernel of n2 takes 40 for 20s", "update of n2 takes 3 for 20s",
		"start n9", "herd 4", "state of n2 takes 40 for 20s", "mute n2 for 10s", "deafen n2 for 10s",
		"full events for 10s", "full plans for 10s", "full payloads for 10s", "full memories for 10s",
		"uplink of s2 fails for 10s", "switch of s2 fails for 10s", "power of s2 fails for 10s",
		"cut n2 from hub for 10s", "cut n2 from peers for 10s", "cut n1 n2 for 10s", "reset n2 for 5s", "link n1 n2 0.1 for 5s",
		"disconnect n1 n2", "hub away for 5s", "hub electing for 5s", "requests lost 0.2 for 5s", "answers lost 0.2 for 5s",
		"disk of n2 is full for 10s", "disk of n2 is read-only for 10s", "disk of n2 takes 9 for 10s", "disk of n2 tears",
		"wipe store", "crash negotiator", "crash planner before publish 1", "depose restorer for 2s", "pause monitor for 2s",
	} {
		t.Run(strings.ReplaceAll(fault, " ", "-"), func(t *testing.T) {
			script := Script{
				Cluster: Cluster{Seed: 1, Nodes: 4, Layers: 4, Sites: 2, Snapshots: 8},
				Faults:  []Fault{{At: firstFault, Words: fault}},
			}
			outcome := script.Play(true)
			if len(outcome.Violations) > 0 || outcome.Held {
				t.Errorf("%v\n%s\n%v", script, strings.Join(outcome.Story, "\n"), outcome)
			}
		})
	}
}

// All who hear an event share what it was decoded to. Whoever changed it would have others hear what nobody said.
func TestNobodyChangesWhatAllShare(t *testing.T) {
	for seed := range uint64(20) {
		w, _ := NewScript(seed).play(false)
		for _, log := range w.hub.log {
			for _, event := range log {
				expectAsSaid(t, event)
			}
		}
	}
}

func expectAsSaid(t *testing.T, event events.Event) {
	t.Helper()
	shared, err := event.Read()
	if err != nil {
		t.Fatal(err)
	}
	row, _ := event.Kind.Row()
	said := row.New()
	if err := events.Decode(event.Data, said); err != nil {
		t.Fatal(err)
	}
	is, errIs := json.Marshal(shared)
	was, errWas := json.Marshal(said)
	if errIs != nil || errWas != nil || !bytes.Equal(is, was) {
		t.Errorf("%s of %s was changed:\n%s\n%s", event.Kind, event.Source, was, is)
	}
}
