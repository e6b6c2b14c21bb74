package machine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

// abandons returns how many negotiations stopped all trainers in their step.
func (w *world) abandons() (count int) {
	for _, event := range w.said {
		if event.Kind == events.NegotiationOpened && must[events.Opening](w.t, event).Abandon {
			count++
		}
	}
	return count
}

// Fault 11 of the hostile reading: a process that dies every 3 s stopped all others 5 times in ten minutes by one name, and 201 times
// by new ones.
func TestAProcessThatFailsByANewNameEachTimeStopsTheOthersNearlyAsSeldomAsByOne(t *testing.T) {
	for name, most := range map[string]int{"n9": 6, "host-%d": 6, "pod-%d": 12} {
		w := newWorld(t, 3)
		for i := range 200 {
			node := name
			if strings.Contains(name, "%") {
				node = fmt.Sprintf(name, 4000+i)
			}
			w.host[node] = "a-host"
			if strings.HasPrefix(name, "pod") {
				w.host[node] = node
			}
			w.join(node)
			w.run()
			w.tick(2 * time.Second) // it trains a step, is out of memory, and is started again
			w.lose(node)
			w.run()
			w.tick(time.Second)
		}
		if stopped := w.abandons(); stopped > most {
			t.Errorf("%s: in ten minutes all were stopped %d times, expected at most %d", name, stopped, most)
		}
		if kept := len(w.machine.state.Starts); kept > 202 {
			t.Errorf("%s: %d crowds are remembered", name, kept)
		}
	}
}

func TestProcessesThatOneOutageEndsAreOneFailedStart(t *testing.T) {
	w := newWorld(t, 3)
	for round := range 2 {
		for i := range 8 {
			node := fmt.Sprintf("gpu%d-%d", i, round)
			w.host[node] = "a-host"
			w.join(node)
		}
		w.run()
		if round > 0 {
			break
		}
		w.tick(10 * time.Second)
		for i := range 8 {
			w.lose(fmt.Sprintf("gpu%d-0", i))
		}
		w.run()
		w.tick(time.Second)
	}
	for i := range 8 {
		if told := w.joinDelays(fmt.Sprintf("gpu%d-1", i)); len(told) > 0 {
			t.Fatalf("told %+v", told)
		}
	}
}

func TestWhoNamesTheHostOfOthersKeepsThemAwayForAMinuteAtMostAndNobodyWhoHasTrained(t *testing.T) {
	w := newWorld(t, 3)
	w.tick(2 * time.Minute)
	for i := range 30 {
		liar := fmt.Sprintf("x%d", i)
		w.host[liar] = "n3"
		w.join(liar)
		w.run()
		w.tick(time.Second)
		w.lose(liar)
		w.run()
	}
	w.lose("n3") // which has trained for minutes
	w.run()
	w.join("n3")
	w.run()
	if len(w.joinDelays("n3")) > 0 || !strings.Contains(w.nodes(), "n3") {
		t.Errorf("n3 is told %+v; nodes %q", w.joinDelays("n3"), w.nodes())
	}
	w.host["n4"] = "n3"
	w.join("n4")
	w.run()
	told := w.joinDelays("n4")
	if len(told) != 1 || told[0].Seconds > 60 || !strings.Contains(told[0].Reason, "on the host n3") {
		t.Fatalf("n4 is told %+v", told)
	}
	if w.tick(62 * time.Second); !strings.Contains(w.nodes(), "n4") {
		t.Errorf("nodes %q after a minute", w.nodes())
	}
}

// A new user saw three scripts on one host wait 8 s after an orderly stop, and others after Ctrl-C.
func TestNobodyWaitsForProcessesThatEndedAsTheyWereTo(t *testing.T) {
	for name, end := range map[string]func(*world, string){
		"it asked to leave before it had its place": func(w *world, node string) {
			w.hear(events.LeaveRequested, events.NodeSource(node), node, &events.Leave{Node: node})
		},
		"it asked to leave, and did not wait": func(w *world, node string) {
			w.mute[events.Scheduled] = true
			w.hear(events.LeaveRequested, events.NodeSource(node), node, &events.Leave{Node: node})
			w.lose(node)
		},
		"it was at its end": func(w *world, node string) {
			w.hear(events.NodeExited, events.NodeSource(node), node,
				&events.Exit{Node: node, Incarnation: w.process[node], Reason: "status 0", Expected: true})
			w.lose(node)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 3)
			w.host["n4"] = "a-host"
			for range 4 {
				w.join("n4")
				if !strings.HasSuffix(name, "place") {
					w.run()
				}
				w.tick(2 * time.Second)
				end(w, "n4")
				w.mute[events.Scheduled] = false
				w.run()
				w.tick(time.Second)
			}
			if w.join("n4"); len(w.joinDelays("n4")) > 0 {
				t.Errorf("it is told %+v", w.joinDelays("n4"))
			}
		})
	}
}

func TestNobodyWaitsAfterAStopForWhatFailedBefore(t *testing.T) {
	w := newEmptyWorld(t, 2, 0)
	w.tiers, w.step = true, 0
	w.host["n1"], w.host["n2"], w.host["n3"] = "a-host", "a-host", "a-host"
	w.begin(2)
	for range 4 {
		w.join("n3")
		w.run()
		w.tick(2 * time.Second)
		w.lose("n3")
		w.run()
		w.tick(time.Second)
	}
	w.step = 5
	w.stops()
	before := len(w.said)
	for _, node := range []string{"n1", "n2", "n3"} {
		w.join(node)
		w.run()
	}
	for _, event := range w.said[before:] {
		if event.Kind == events.JoinDelayed {
			t.Errorf("told %s", event.Data)
		}
	}
}
