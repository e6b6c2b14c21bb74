package machine

import (
	"testing"

	"github.com/reknit/reknit/events"
)

// ignores reports whether n1 ignores what another node offers.
func (n *node) ignores(other string) bool {
	return n.machine.Ignores(events.Event{Kind: events.ShardOffered, Source: events.NodeSource(other), Cluster: "c", Subject: "unit-1"})
}

func TestOnlyMembersOfANegotiationAreHeard(t *testing.T) {
	n := trainingNode(t, 12)
	if !n.ignores("n2") {
		t.Error("n2 has nothing to give while nothing is negotiated, and is heard")
	}
	n.hears(events.NegotiationOpened, opening("g4", 4, false, "n1", "n2"))
	if n.ignores("n2") || !n.ignores("n9") {
		t.Errorf("the member n2 is ignored: %v; n9, which is none: %v", n.ignores("n2"), n.ignores("n9"))
	}
	n.hears(events.Aborted, &events.Abort{Negotiation: "g4", Generation: 4})
	if !n.ignores("n2") {
		t.Error("n2 is heard behind the end of the negotiation")
	}
	if n.machine.Ignores(n.event(events.NegotiationOpened, opening("g5", 4, false, "n1", "n2"))) {
		t.Error("the negotiator is ignored")
	}
}

func TestMembersOfANegotiationThatWaitsForItsPlanAreHeard(t *testing.T) {
	n := trainingNode(t, 12)
	n.hears(events.NegotiationOpened, opening("g5", 5, false, "n1", "n3")) // plan 4 comes later, on another stream
	if n.ignores("n3") || !n.ignores("n9") {
		t.Errorf("the member n3 is ignored: %v; n9, which is none: %v", n.ignores("n3"), n.ignores("n9"))
	}
}
