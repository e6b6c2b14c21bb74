package overlay

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

// A script that slept beside its micro-batches was seen by nobody for five and a half minutes.
func TestWhomOthersWaitForIsToldUntilItIsPastTheStepOrWaitsItself(t *testing.T) {
	logged := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	o := New()
	told := events.StepDelay{Node: "b", Incarnation: "i", Generation: 1, Step: 20, By: "a", Phase: events.PhaseBetween,
		WaitedSeconds: 3, UsualSeconds: 0.067, Reason: "a waits"}
	data, err := json.Marshal(told)
	if err != nil {
		t.Fatal(err)
	}
	o.Take(events.Event{Kind: events.StepDelayed, Subject: "b", Data: data, Logged: logged})
	node := func(pulse events.Pulse) []Node {
		return []Node{{Node: "b", State: Training, Incarnation: "i", Pulse: &pulse}}
	}
	says := "no step for 45s, 67ms is usual: a waits for b (between steps)"
	for name, test := range map[string]struct {
		nodes    []Node
		expected string
	}{
		"it stands":                        {node(events.Pulse{Generation: 1, Step: 20, Between: true}), says},
		"it is behind its commit":          {node(events.Pulse{Generation: 1, Step: 19, Between: true}), says},
		"it waits itself":                  {node(events.Pulse{Generation: 1, Step: 20, Phase: events.PhaseWaiting}), ""},
		"it made the step":                 {node(events.Pulse{Generation: 1, Step: 21}), ""},
		"it trains under another plan":     {node(events.Pulse{Generation: 2, Step: 20}), ""},
		"another process has its name":     {[]Node{{Node: "b", State: Training, Incarnation: "j", Pulse: &events.Pulse{Generation: 1}}}, ""},
		"it is not heard, which says more": {[]Node{{Node: "b", State: Silent, Incarnation: "i"}}, ""},
	} {
		if found := SaysDelays(o.Delays(test.nodes), logged.Add(42*time.Second)); found != test.expected {
			t.Errorf("%s: it says %q, expected %q", name, found, test.expected)
		}
	}
	o.commit(events.Plan{Generation: 2}, logged)
	if found := o.Delays(node(events.Pulse{Generation: 1, Step: 20})); len(found) > 0 {
		t.Errorf("under the next plan %v is told", found)
	}
}

func TestAStepIsLateOnceItTakesLongerThanUsualAndThatIsKnown(t *testing.T) {
	for _, c := range []struct {
		since time.Duration
		usual float64
		says  string
	}{
		{29 * time.Second, 0.25, ""},
		{45 * time.Second, 0.25, "no step for 45s, 250ms is usual: reknit nodes tells who computes and who waits"},
		{45 * time.Second, 9, ""},
		{91 * time.Second, 9, "no step for 1m31s, 9s is usual: reknit nodes tells who computes and who waits"},
		{time.Hour, 0, ""}, // the first step may compile
	} {
		if says := SaysLate(c.since, c.usual); says != c.says {
			t.Errorf("after %v, where %v s are usual, it says %q: expected %q", c.since, c.usual, says, c.says)
		}
	}
}

// Its process lives and its agent's heartbeats come: nobody ever said a word of it.
func TestAScriptThatRestsIsToldForAsLongAsItsAgentTellsSo(t *testing.T) {
	o := New()
	node := func(name string, script *events.Script) Node {
		return Node{Node: name, State: Training, Pipeline: new(int), Pulse: &events.Pulse{Generation: 1, Script: script}}
	}
	rests := func(seconds float64) *events.Script { return &events.Script{RestsSeconds: seconds} }
	stopped := rests(70)
	stopped.Pid, stopped.Stopped = 4711, true
	for expected, nodes := range map[string][]Node{
		"": {node("a", nil), node("b", &events.Script{Awaits: []string{"c"}, UntilSeconds: 9})},
		"the script of b does nothing: it has neither used a processor nor written for 65 s": {node("a", nil), node("b", rests(65))},
		"one of the scripts of c, a, b and 1 more hangs, and the others wait for it: none of them has used a processor or " +
			"written for 61 s": {
			node("a", rests(65)), node("b", rests(65)), node("c", rests(70)), node("d", rests(61)),
		},
		"the script of b (pid 4711) is stopped, by SIGSTOP or a debugger, for 70 s, and the others wait for it": {
			node("a", rests(75)), node("b", stopped), node("c", rests(65)),
		},
	} {
		if found, _ := SaysRests(o.Delays(nodes)); found != expected {
			t.Errorf("it says %q, expected %q", found, expected)
		}
	}
}

// A heartbeat that told of a rest took the one line that status, the page and the alert have, though the node only asked for
// its place.
func TestAScriptThatRestsHidesNobodyForWhomOthersWaitAndCountsWhereItTrains(t *testing.T) {
	logged := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	o := New()
	data, err := json.Marshal(events.StepDelay{Node: "b", Incarnation: "i", Generation: 1, Step: 20, By: "a", WaitedSeconds: 3,
		UsualSeconds: 0.067, Reason: "a waits"})
	if err != nil {
		t.Fatal(err)
	}
	o.Take(events.Event{Kind: events.StepDelayed, Subject: "b", Data: data, Logged: logged})
	waited := Node{Node: "b", State: Training, Incarnation: "i", Pipeline: new(int), Pulse: &events.Pulse{Generation: 1, Step: 20}}
	rests := Node{Node: "c", Pulse: &events.Pulse{Generation: 1, Script: &events.Script{RestsSeconds: 61}}}
	for state, told := range map[string]bool{
		Training: true, Leaving: true, Suspected: true, Joining: false, Spare: false, Starting: false, Ended: false,
	} {
		rests.State, rests.Pipeline = state, nil
		if told {
			rests.Pipeline = new(int)
		}
		delays := o.Delays([]Node{rests, waited})
		if says := SaysDelays(delays, logged.Add(42*time.Second)); says != "no step for 45s, 67ms is usual: a waits for b" {
			t.Errorf("beside one that rests and is %s it says %q", state, says)
		}
		if says, _ := SaysRests(delays); (says != "") != told {
			t.Errorf("of one that rests and is %s it says %q", state, says)
		}
	}
}
