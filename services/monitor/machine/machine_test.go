package machine_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine"
)

func TestAKilledNodeIsLostAtOnceWhenAPeerReportsTheReset(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	w.nodes["n3"].dead = true
	before := w.now
	w.pulse("n1", refused("n3"))
	if len(w.said) != 1 || w.now != before {
		t.Fatalf("expected the loss at once, got %v", w.said)
	}
	state, err := events.Open[events.NodeState](w.said[0])
	if err != nil || state.Incarnation != "a" || !strings.Contains(state.Reason, "n1") {
		t.Errorf("%+v, %v", state, err)
	}
	w.expect("node.lost n3")
	w.pulse("n2", refused("n3"))
	w.pass(20 * time.Second)
	w.expect() // once an incarnation
}

func TestASilentNodeIsSuspectedAndLostAndOneThatComesBackIsCleared(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	w.nodes["n3"].frozen = true
	w.pass(3 * time.Second)
	w.nodes["n3"].frozen = false
	w.pass(5 * time.Second)
	w.expect("node.suspected n3", "node.cleared n3")
	w.nodes["n2"].frozen, w.nodes["n2"].dark = true, true
	w.pass(6 * time.Second)
	w.expect("node.suspected n2", "node.lost n2")
}

// The host's clock is set back as a node dies (NTP, a resumed virtual machine), and forth again.
func TestASilentDeathIsFoundAsFastWhenTheClockIsSetBack(t *testing.T) {
	for _, step := range []time.Duration{0, -time.Minute, -time.Hour} {
		w := newWorld(t, "n1", "n2", "n3", "n4")
		w.pass(10 * time.Second)
		w.expect()
		w.nodes["n4"].dead = true
		w.now = w.now.Add(step)
		w.pass(5 * time.Second)
		w.expect("node.suspected n4", "node.lost n4")
		w.now = w.now.Add(-step)
		w.pass(20 * time.Second)
		w.expect()
	}
}

func TestProbesAndLinkRoundsGoOnWhenTheClockIsSetBack(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	w.join("n4", "joins")
	w.asks = nil
	w.now = w.now.Add(-time.Hour)
	w.pass(10 * time.Second)
	signs, links := 0, 0
	for _, ask := range w.asks {
		if ask.Target == "" {
			signs++
		} else {
			links++
		}
	}
	if signs < 9 || links < 9 {
		t.Errorf("within 10 s %d signs of life and %d links were asked for: expected one of each a second", signs, links)
	}
}

func TestASuspicionThatClearsLeavesNothingBehind(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	w.nodes["n3"].frozen = true
	w.pass(3 * time.Second)
	w.nodes["n3"].frozen = false
	w.pass(time.Second)
	suspected, cleared := w.said[0], w.said[len(w.said)-1]
	w.expect("node.suspected n3", "node.cleared n3")
	w.asks = nil
	w.pass(5 * time.Second)
	for _, ask := range w.asks {
		if ask.Target == "" {
			t.Errorf("%s is well, and was asked for a sign of life", ask.Node)
		}
	}
	w.restart()
	w.pass(5 * time.Second)
	w.expect() // it is not cleared again
	w.nodes["n3"].frozen = true
	w.pass(3 * time.Second)
	if again := w.said[0]; again.Kind != events.NodeSuspected || again.ID == suspected.ID || again.ID == cleared.ID {
		t.Errorf("a second suspicion: said %+v after %+v", again, suspected)
	}
}

func TestALossSaysWhatItWasConcludedFrom(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3", "n4", "n5")
	lost := func(name string) string {
		t.Helper()
		at := slices.IndexFunc(w.said, func(event events.Event) bool {
			return event.Kind == events.NodeLost && event.Subject == name
		})
		if at < 0 {
			t.Fatalf("%s is not lost", name)
		}
		state, err := events.Open[events.NodeState](w.said[at])
		if err != nil {
			t.Fatal(err)
		}
		return state.Reason
	}
	w.nodes["n3"].frozen = true
	w.pass(10 * time.Second)
	w.deaf = true
	w.pulse("n1", refused("n4"))
	w.pulse("n2", refused("n4"))
	w.deaf = false
	w.nodes["n4"].dead = true
	w.pulse("n2", refused("n4"))
	w.join("n6", "joins")
	w.nodes["n6"].dead = true
	w.pass(3 * time.Second)
	for name, reason := range map[string]string{
		"n3": "no heartbeat, and its host accepts connections on which nobody answers",
		"n4": "n1, n2 reported a reset connection and nobody answers at the hub",
		"n6": "nobody answers at the hub",
	} {
		if got := lost(name); got != reason {
			t.Errorf("%s: %q: expected %q", name, got, reason)
		}
	}
}

func TestANodeThatAnswersProbesButSendsNoHeartbeatsStaysSuspected(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	w.mute = "n3"
	w.pass(20 * time.Second)
	w.expect("node.suspected n3")
	w.mute = ""
	w.pass(time.Second)
	w.expect("node.cleared n3")
}

func TestANodeThatOnlyAPeerComplainsAboutIsNotLost(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	for range 20 {
		w.pulse("n1", refused("n3"))
		w.pass(time.Second)
	}
	w.expect()
}

func TestWhenTheHubIsAwayNobodyIsLost(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3", "n4")
	w.silent = true
	w.pass(12 * time.Second)
	w.silent = false
	w.pass(20 * time.Second)
	for _, event := range w.said {
		if event.Kind == events.NodeLost {
			t.Errorf("lost %s", event.Subject)
		}
	}
}

func TestWhatIsKnownOfNodesThatAreGoneIsBounded(t *testing.T) {
	w := newWorld(t, "n1", "n2")
	var remembered []int
	for round := range 20 {
		var changes []events.Change
		for number := range 1000 {
			gone := fmt.Sprintf("gone%d-%d", round, number)
			changes = append(changes, events.Change{Kind: events.ChangeDisconnect, Node: "n1", Peer: gone})
		}
		w.commit("g", changes, "n1", "n2")
		remembered = append(remembered, w.remembered())
	}
	if early, late := slices.Max(remembered[:10]), slices.Max(remembered[10:]); float64(late) > 1.1*float64(early) {
		t.Errorf("%d bytes are remembered of 20,000 nodes that are gone, and %d of 10,000", late, early)
	}
}

// A peer reported n2 before n2 was restarted, and the probe that would have told was lost. The link to the process that
// took its place is new: that it does not work yet proves nothing.
func TestReportsOfANodeAreForgottenWithIt(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	w.deaf = true
	w.pulse("n1", refused("n2"))
	w.deaf = false
	w.join("n2", "b")
	w.commit("g2", nil, "n1", "n2", "n3")
	w.broken[events.PairOf("n1", "n2")] = true
	w.pass(8 * time.Second)
	w.expect()
}

// remembered is how much the machine keeps for a restart.
func (w *world) remembered() int {
	snapshot, err := w.machine.Snapshot()
	if err != nil {
		w.t.Fatal(err)
	}
	return len(snapshot)
}

func TestAfterARestartEveryNodeHasAFullTimeoutOfGrace(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	w.nodes["n3"].frozen = true
	w.pass(3 * time.Second)
	w.broken[events.PairOf("n1", "n2")] = true
	w.pulse("n1", refused("n2"))
	w.expect("node.suspected n3", "link.lost n1-n2")
	snapshot, err := w.machine.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	restarted := machine.New(machine.Defaults(cluster))
	if err := errors.Join(restarted.Restore([]byte("{")), restarted.Restore(snapshot)); err == nil {
		t.Error("expected an error for half a snapshot")
	}
	if again, err := restarted.Snapshot(); err != nil || string(again) != string(snapshot) {
		t.Errorf("%s\nis not\n%s", again, snapshot)
	}
	w.machine = restarted
	w.now = w.now.Add(time.Hour)
	w.pass(4 * time.Second)
	w.expect()
	w.broken = map[events.Pair]bool{}
	w.pass(10 * time.Second)
	w.expect("link.restored n1-n2", "node.lost n3")
}

func TestALossSaidJustBeforeACrashIsNotSaidAgain(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	w.nodes["n3"].dead = true
	snapshot, err := w.machine.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	w.pulse("n1", refused("n3"))
	lost := w.said[0]
	w.expect("node.lost n3")
	w.machine = machine.New(machine.Defaults(cluster)) // nothing was remembered
	if err := w.machine.Restore(snapshot); err != nil {
		t.Fatal(err)
	}
	if said, err := w.machine.Handle(lost); err != nil || len(said) > 0 { // but the log has it
		t.Fatal(said, err)
	}
	w.pass(20 * time.Second)
	w.expect()
}

func TestTheFailureRateGrowsWithEachLoss(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3", "n4", "n5")
	failures := 0.0
	for _, name := range []string{"n5", "n4", "n3"} {
		w.nodes[name].dead = true
		w.pulse("n1", refused(name))
		state, err := events.Open[events.NodeState](w.said[len(w.said)-1])
		failures++
		// One failure a day is expected beforehand, and a few node-seconds have passed.
		if rate := (1 + failures) / (24 * 3600); err != nil || math.Abs(state.FailuresPerNodeSecond/rate-1) > 0.01 {
			t.Errorf("%s: %v failures a node-second, expected %v, %v", name, state.FailuresPerNodeSecond, rate, err)
		}
	}
}

func TestALossTellsHowLongLostNodesStayedAwaySoFar(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3", "n4")
	expected := func(node string) float64 {
		t.Helper()
		w.nodes[node].frozen = true
		w.pass(30 * time.Second)
		at := slices.IndexFunc(w.said, func(event events.Event) bool { return event.Kind == events.NodeLost })
		lost, err := events.Open[events.NodeState](w.said[at])
		if err != nil || lost.Node != node {
			t.Fatalf("lost %s, expected %s: %v", lost.Node, node, err)
		}
		w.said = nil
		return lost.SecondsUntilReturn
	}
	if got := expected("n1"); got != 0 {
		t.Fatalf("nobody came back yet, but %v s are expected", got)
	}
	w.join("n1", "b")
	first := expected("n2")
	if first < 10 || first > 30 {
		t.Fatalf("n1 was away for less than 30 s, and %v s are expected", first)
	}
	w.pass(2 * time.Hour) // n2 stays away, and counts for an hour
	if got := expected("n3"); got < first+3600 || got > first+3660 {
		t.Fatalf("%v s are expected, after one stayed away for an hour and one for %v s", got, first)
	}
}

func TestLongNamesStillMakeASubject(t *testing.T) {
	long := strings.Repeat("N", 60)
	w := newWorld(t, long+"1", long+"2")
	w.broken[events.PairOf(long+"1", long+"2")] = true
	w.pulse(long+"1", refused(long+"2"))
	if len(w.said) != 1 || !events.Token(w.said[0].Subject) {
		t.Errorf("said %+v", w.said)
	}
}

// Whatever is killed, frozen, thawed and broken at random: no living node is lost on evidence, every loss is said
// once, and the same history says the same words.
func TestWhateverHappensEachLossIsSaidOnceAndTheMachineIsDeterministic(t *testing.T) {
	for seed := range uint64(60) {
		if first, second := churn(t, seed), churn(t, seed); first != second {
			t.Fatalf("seed %d: the same history said\n%s\nand\n%s", seed, first, second)
		}
	}
}

func churn(t *testing.T, seed uint64) string {
	random := rand.New(rand.NewPCG(seed, 7))
	w := newWorld(t, "n1", "n2", "n3", "n4", "n5", "n6")
	for range 40 {
		names := w.names()
		name, peer := names[random.IntN(len(names))], names[random.IntN(len(names))]
		node := w.nodes[name]
		switch random.IntN(6) {
		case 0:
			node.dead = true
		case 1:
			node.frozen = !node.frozen
		case 2:
			if name != peer {
				w.broken[events.PairOf(name, peer)] = !w.broken[events.PairOf(name, peer)]
			}
		case 3:
			w.join(name, fmt.Sprint("b", random.Uint32()))
		default:
			if name != peer {
				w.pulse(name, refused(peer))
			}
		}
		w.pass(time.Duration(random.IntN(30)) * 100 * time.Millisecond)
	}
	trace, lost := "", map[string]bool{}
	for _, event := range w.said {
		trace += fmt.Sprintf("%s %s %s\n", event.ID, event.Kind, event.Subject)
		if event.Kind == events.NodeLost {
			state, err := events.Open[events.NodeState](event)
			if err != nil || lost[state.Node+state.Incarnation] {
				t.Errorf("seed %d: %s of incarnation %s lost again (%v)", seed, state.Node, state.Incarnation, err)
			}
			lost[state.Node+state.Incarnation] = true
		}
	}
	return trace
}

func TestWhoComesAfterTheEndOfTheJobIsNotMissed(t *testing.T) {
	w := newWorld(t, "n1", "n2")
	w.hear("/negotiator", events.TrainingCompleted, "end", &events.JobEnd{Generation: 1, Step: 30, Nodes: []string{"n1", "n2"}})
	w.restart()
	w.join("n3", "a")
	w.nodes["n3"].dead = true // its refusal is on its way
	w.pass(2 * time.Minute)
	w.expect()
}
