package machine_test

import (
	"slices"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

func TestAnotherIncarnationDoesNotSpeakForTheOneThatJoined(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	w.nodes["n3"] = &member{incarnation: "b"} // restarted, has not joined yet
	w.pulse("n1", refused("n3"))
	w.expect("node.lost n3")
	w.pass(10 * time.Second)
	w.join("n3", "b")
	w.pass(10 * time.Second)
	w.expect()
	w.nodes["n3"].frozen = true
	w.pass(10 * time.Second)
	w.expect("node.suspected n3", "node.lost n3")
}

func TestAnotherIncarnationReportsNobody(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	w.nodes["n3"].dead = true
	w.nodes["n1"] = &member{incarnation: "b"} // restarted, has not joined yet
	w.pulse("n1", refused("n3"))
	w.expect()
	w.pulse("n2", refused("n3"))
	w.expect("node.lost n3")
}

// A kit that waits for its place could have the nodes of others try any address, and the log told what became of it.
func TestNobodyDialsANodeThatNoNegotiationHasLetIn(t *testing.T) {
	w := newWorld(t, "n1", "n2")
	w.asks = nil
	for _, incarnation := range []string{"third", "fourth", "fifth"} {
		w.join("n3", incarnation)
		w.nodes["n3"].frozen = true
		w.pass(10 * time.Second)
		w.expect("node.suspected n3", "node.lost n3")
	}
	if dialled := w.dialled("n3"); len(dialled) > 0 {
		t.Errorf("dialled %q", dialled)
	}
}

func TestANodeIsDialledWhereItAskedFromFirst(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	w.hear("/node/n3", events.JoinRequested, "n3", &events.Join{
		Node: "n3", Incarnation: "a", Address: "victim:1", MemoryBytes: 1, Job: job,
	})
	w.asks = nil
	w.nodes["n3"].frozen = true
	w.pass(10 * time.Second)
	w.expect("node.suspected n3", "node.lost n3")
	if dialled := w.dialled("n3"); !slices.Equal(dialled, []string{"n3:1"}) {
		t.Errorf("dialled %q", dialled)
	}
}

// dialled returns at which addresses others were to reach a node, each once.
func (w *world) dialled(node string) (addresses []string) {
	for _, ask := range w.asks {
		if ask.Target == node && !slices.Contains(addresses, ask.Address) {
			addresses = append(addresses, ask.Address)
		}
	}
	return addresses
}

func TestAJoiningNodeThatVanishesIsMissedWithoutAPeerThatReportsIt(t *testing.T) {
	w := newWorld(t, "n1", "n2")
	w.join("n3", "third")
	w.pass(2 * time.Second)
	w.expect()
	w.nodes["n3"].dead = true
	w.pass(900 * time.Millisecond)
	w.expect() // the hub's word counts the second time
	w.pass(1600 * time.Millisecond)
	w.expect("node.lost n3")
}

func TestAJoiningNodeThatAnswersInBetweenHasNotVanished(t *testing.T) {
	w := newWorld(t, "n1", "n2")
	w.join("n3", "third")
	w.pass(2 * time.Second)
	w.mute = "n3" // an answer is the only sign of life
	for range 2 {
		w.nodes["n3"].dead = true
		w.pass(time.Second)
		w.nodes["n3"].dead = false
		w.pass(time.Second)
	}
	w.mute = ""
	w.pass(5 * time.Second)
	for _, event := range w.said {
		if event.Kind == events.NodeLost {
			t.Errorf("lost %s", event.Subject)
		}
	}
}

func TestAJoiningNodeIsWatchedWhateverElseItIsRefused(t *testing.T) {
	w := newWorld(t, "n1", "n2")
	w.join("n3", "third")
	w.hear("/negotiator", events.MembershipRefused, "n3",
		&events.Refusal{Node: "n3", Refused: events.ChangeConnect, Reason: "a link of n3: expected two active nodes"})
	w.nodes["n3"].dead = true
	w.pass(5 * time.Second)
	w.expect("node.lost n3")
}

func TestANodeThatLeftOrWasRefusedIsIgnored(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	w.commit("g2", []events.Change{{Kind: events.ChangeLeave, Node: "n3"}}, "n1", "n2", "n3")
	w.leave("n3")
	w.nodes["n3"].dead = true
	w.join("n4", "a")
	w.hear("/negotiator", events.MembershipRefused, "n4", &events.Refusal{Node: "n4", Refused: events.ChangeJoin,
		Incarnation: w.nodes["n4"].incarnation, Reason: "another job"})
	w.hear("/negotiator", events.MembershipRefused, "n1", &events.Refusal{ // stays
		Node: "n1", Refused: events.ChangeConnect, Reason: "no such link",
	})
	w.nodes["n4"].dead, w.nodes["n1"].dead = true, true
	w.pass(20 * time.Second)
	w.expect("node.suspected n1", "node.lost n1")
}

// Found by simulation seed 1749.
func TestALeaverIsWatchedUntilThePlanWithoutItTakesOver(t *testing.T) {
	leaves := []events.Change{{Kind: events.ChangeLeave, Node: "n3"}}
	w := newWorld(t, "n1", "n2", "n3")
	w.commit("g2", leaves, "n1", "n2", "n3")
	w.nodes["n3"].dead = true
	w.pulse("n2", refused("n3"))
	w.expect("node.lost n3")

	w = newWorld(t, "n1", "n2", "n3")
	w.commit("g2", leaves, "n1", "n2", "n3")
	w.join("n3", "another-process")
	w.expect("node.lost n3")

	w = newWorld(t, "n1", "n2", "n3")
	w.commit("g2", leaves, "n1", "n2", "n3")
	w.generation = 2
	w.pulse("n1")
	w.pulse("n2")
	w.nodes["n3"].dead = true
	w.pulse("n1", refused("n3"))
	w.pass(20 * time.Second)
	w.expect()
}

// A node without a place takes up a plan at once, whatever step the others are at.
func TestALeaverIsWatchedUntilAllHaveTakenUpThePlanWithoutIt(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	w.commit("g2", []events.Change{{Kind: events.ChangeLeave, Node: "n3"}}, "n1", "n2", "n3")
	w.generation = 2
	w.pulse("n1")
	w.generation = 1
	w.nodes["n3"].dead = true
	w.pulse("n2", refused("n3"))
	w.expect("node.lost n3")
}

// The last node without the plan falls silent and is lost: no heartbeat tells that the plan has taken over.
func TestALeaverIsForgottenWithTheLastThatNeedsIt(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3", "n4")
	w.nodes["n2"].frozen, w.nodes["n2"].dark = true, true
	w.commit("g2", []events.Change{{Kind: events.ChangeLeave, Node: "n3"}}, "n1", "n2", "n3", "n4")
	w.generation = 2
	w.pass(10 * time.Second)
	w.expect("node.suspected n2", "node.lost n2")
	w.nodes["n3"].dead = true
	w.pass(20 * time.Second)
	w.expect()
}

func TestALeaverThatDiesBeforeTheCommitIsLost(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	w.hear("/negotiator", events.NegotiationOpened, "g2", &events.Opening{
		Negotiation: "g2", Generation: 2, Changes: []events.Change{{Kind: events.ChangeLeave, Node: "n3"}},
	})
	w.nodes["n3"].dead = true
	w.pulse("n2", refused("n3"))
	w.expect("node.lost n3")
}
