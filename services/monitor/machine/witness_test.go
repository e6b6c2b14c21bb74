package machine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

// Nobody trains with the node at the moment: no peer sees a reset.
func TestASilentNodeWhoseHostRefusesItsWitnessesIsLostAtOnce(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3", "n4")
	w.nodes["n4"].dead = true
	w.pass(2500 * time.Millisecond)
	w.expect("node.suspected n4", "node.lost n4")
}

func TestANodeThatItsPeersReachIsNotLostWithItsWayToTheHub(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3", "n4")
	w.mute, w.deafness = "n4", "n4"
	w.pass(30 * time.Second)
	w.mute, w.deafness = "", ""
	w.pass(2 * time.Second)
	w.expect("node.suspected n4", "node.cleared n4")
}

func TestAWitnessOfItsSiteAndOthersFromElsewhereTryASilentNode(t *testing.T) {
	var names []string
	for _, site := range []string{"a", "b", "c"} {
		for i := range 4 {
			names = append(names, fmt.Sprint(site, "-", i))
		}
	}
	w := newWorld(t, names...)
	w.nodes["b-0"].frozen, w.nodes["b-0"].dark, w.asks = true, true, nil
	w.pass(10 * time.Second)
	w.expect("node.suspected b-0", "node.lost b-0")
	asked := map[string]bool{}
	var round []string
	for _, ask := range w.asks {
		if ask.Target != "b-0" || ask.Bytes > 0 {
			continue
		}
		asked[ask.Node] = true
		if round = append(round, ask.Node); len(round) < 3 {
			continue
		}
		if near := inSite("b", round); near != 1 {
			t.Errorf("asked %v, %d of its own site", round, near)
		}
		round = nil
	}
	if len(asked) < 5 || len(round) > 0 {
		t.Errorf("asked %v, and %v beside", asked, round)
	}
}

// A heartbeat that waits while the machine is at the log is judged by when it came: one that came late says so, and one
// that only waited is not late.
func TestAHeartbeatIsJudgedByWhenItCame(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3", "n4")
	w.pass(10 * time.Second)
	w.nodes["n4"].frozen, w.nodes["n4"].dark = true, true
	came := w.now
	w.pass(1500 * time.Millisecond)
	w.nodes["n4"].number++
	beat := events.Pulse{Node: "n4", Incarnation: "a", Number: w.nodes["n4"].number}
	w.note(w.machine.Pulse(beat, w.now.Sub(came), w.now))
	w.pass(3300 * time.Millisecond)
	w.expect("node.suspected n4", "node.lost n4") // 4.8 s after it came, not after it was taken
}

func TestASilentSiteIsSaidOnceAndItsNodesLiveOn(t *testing.T) {
	var names []string
	for i := range 8 {
		names = append(names, fmt.Sprint([]string{"near", "far"}[i%2], "-", i))
	}
	w := newWorld(t, append(names, "x", "y")...)
	dark := func(is bool) {
		for name, node := range w.nodes {
			if strings.HasPrefix(name, "far-") {
				node.frozen, node.dark = is, is
			}
		}
	}
	dark(true)
	w.pass(40 * time.Second)
	dark(false)
	w.pass(5 * time.Second)
	var said []string
	for _, event := range w.said {
		if event.Kind == events.SiteSuspected || event.Kind == events.SiteCleared || event.Kind == events.NodeLost {
			said = append(said, fmt.Sprint(event.Kind, " ", event.Subject))
		}
	}
	if expected := []string{"site.suspected far", "site.cleared far"}; !slices.Equal(said, expected) {
		t.Errorf("expected %q, got %q", expected, said)
	}
}

func inSite(site string, names []string) (nodes int) {
	for _, name := range names {
		if strings.HasPrefix(name, site+"-") {
			nodes++
		}
	}
	return nodes
}

// numbered returns so many names.
func numbered(nodes int) (names []string) {
	for i := range nodes {
		names = append(names, fmt.Sprintf("n%04d", i))
	}
	return names
}

// losses returns how many nodes were lost.
func (w *world) losses() (nodes int) {
	for _, event := range w.said {
		if event.Kind == events.NodeLost {
			nodes++
		}
	}
	return nodes
}

func TestManyThatAreCutFromTheHubAtOnceAndReachedByOthersAreNotLost(t *testing.T) {
	for _, test := range []struct{ nodes, cut int }{{300, 100}, {1000, 400}} {
		w := newWorld(t, numbered(test.nodes)...)
		for _, name := range w.names()[:test.cut] {
			w.nodes[name].cut = true
		}
		w.pass(20 * time.Second)
		if lost := w.losses(); lost > 0 {
			t.Errorf("of %d nodes %d were cut off, and %d of these were lost", test.nodes, test.cut, lost)
		}
	}
}

func TestManyThatVanishAtOnceAreLostThoughTheirTurnComesLate(t *testing.T) {
	w := newWorld(t, numbered(1000)...)
	for _, name := range w.names()[:400] {
		w.nodes[name].frozen, w.nodes[name].dark = true, true
	}
	w.pass(12 * time.Second)
	if lost := w.losses(); lost != 400 {
		t.Errorf("400 vanished, and %d were lost", lost)
	}
}

func TestNodesThatFallSilentAtOnceHaveOtherWitnesses(t *testing.T) {
	w := newWorld(t, numbered(40)...)
	for _, name := range w.names()[:4] {
		w.nodes[name].cut = true
	}
	w.asks = nil
	w.pass(2500 * time.Millisecond)
	asked := map[string]int{}
	for _, ask := range w.asks {
		if ask.Target != "" && ask.Bytes == 0 {
			asked[ask.Node]++
		}
	}
	if len(asked) != 12 {
		t.Errorf("three witnesses of each of four were asked so often: %v", asked)
	}
}

// stall has a node stall for so long, and come back as another process if it was lost.
func (w *world) stall(name, next string, duration time.Duration) (lost bool) {
	before := w.losses()
	w.nodes[name].frozen = true
	w.pass(duration)
	w.nodes[name].frozen = false
	w.pass(time.Second)
	if lost = w.losses() > before; lost {
		w.join(name, next)
		w.commit("g"+next, nil, w.names()...)
	}
	w.pass(20 * time.Second)
	return lost
}

func TestAProcessThatWasGivenUpForAStallTeachesPatience(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3", "n4")
	if !w.stall("n3", "b", 8*time.Second) {
		t.Error("the first stall is waited for, though none ever ended by itself")
	}
	if w.stall("n3", "c", 8*time.Second) {
		t.Error("lost again, though its stall ended by itself before")
	}
	w.restart()
	w.pass(5 * time.Second)
	if w.stall("n3", "d", 8*time.Second) {
		t.Error("lost again, after the monitor was restarted")
	}
}

func TestASiteThatIsSuspectedAcrossARestartIsClearedOnce(t *testing.T) {
	w := newWorld(t, "far-1", "far-2", "far-3", "n1", "n2", "n3")
	dark := func(is bool) {
		for _, name := range []string{"far-1", "far-2", "far-3"} {
			w.nodes[name].frozen, w.nodes[name].dark = is, is
		}
	}
	dark(true)
	w.pass(5 * time.Second)
	w.expect("site.suspected far")
	w.restart()
	w.pass(10 * time.Second)
	w.expect()
	dark(false)
	w.pass(5 * time.Second)
	w.expect("site.cleared far")
}
