package world

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

// An agent that tells of a rest with each heartbeat has it logged once, and nobody ends or waits for that.
func TestAScriptThatRestsIsNamedOnceAndNothingElseComesOfIt(t *testing.T) {
	outcome := Script{
		Cluster: Cluster{Seed: 1, Nodes: 4, Layers: 4, Kind: events.DataParallel},
		Faults:  []Fault{{At: firstFault, Words: "script of n2 rests 61 for 30s"}, {At: firstFault + 40*time.Second, Words: "start n1"}}, // which runs
	}.Play(true)
	var named int
	for _, line := range outcome.Story {
		if strings.Contains(line, string(events.StepDelayed)) {
			named++
		}
	}
	if named != 1 || outcome.Changes != 1 || len(outcome.Violations) > 0 {
		t.Errorf("named %d times, %v\n%s", named, outcome, strings.Join(outcome.Story, "\n"))
	}
}

// A script that hung beside its micro-batches or behind its commit was seen by nobody for five and a half minutes. Three steps of 0.28 s
// and 2 s are told within 3.5 s: heartbeats come twice a second. The hang begins at another point of a step each time.
func TestAHangBetweenStepsIsNamedWithinThreeStepsAndTwoSecondsAndEndsNobody(t *testing.T) {
	for drawn := range 10 {
		at := firstFault + 4*time.Second + time.Duration(drawn)*17*time.Millisecond
		script := Script{
			Cluster: Cluster{Seed: uint64(drawn), Nodes: 4, Layers: 4, Kind: events.DataParallel},
			Faults:  []Fault{{At: at, Words: "hang n2 between steps for 10s"}, {At: at + 12*time.Second, Words: "start n1"}}, // which runs
		}
		outcome := script.Play(true)
		var named []string
		for _, line := range outcome.Story {
			if strings.Contains(line, string(events.StepDelayed)) {
				named = append(named, line)
			}
			if strings.Contains(line, "lost n2") || strings.Contains(line, "dies because") {
				t.Errorf("seed %d: %s", drawn, line)
			}
		}
		if len(named) != 1 || !strings.Contains(named[0], "between steps") || len(outcome.Violations) > 0 {
			t.Fatalf("seed %d: %v; %v\n%s", drawn, named, outcome, strings.Join(outcome.Story, "\n"))
		}
		var told float64
		if _, err := fmt.Sscan(named[0], &told); err != nil || told < at.Seconds() || told > (at+3500*time.Millisecond).Seconds() {
			t.Errorf("seed %d: hangs at %v, told in %q: %v", drawn, at, named[0], err)
		}
	}
}
