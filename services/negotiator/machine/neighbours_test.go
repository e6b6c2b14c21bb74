package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

// relays are the pairs without a direct link of the newest plan.
func (w *world) relays() []events.Pair { return w.plans()[len(w.plans())-1].Relays }

func TestAJoinerHasLinksToTheNeighboursThatItNamesAndToNoOtherNode(t *testing.T) {
	w := newWorld(t, 3)
	w.neighbours = map[string][]string{"n4": {"n2"}}
	w.join("n4")
	w.run()
	if opened := w.lastOpening().Connect; !slices.Equal(opened, []events.Pair{{A: "n2", B: "n4"}}) {
		t.Errorf("links that were opened and measured for the join: %v, want the one to n2", opened)
	}
	if relays := w.relays(); !slices.Equal(relays, []events.Pair{{A: "n1", B: "n4"}, {A: "n3", B: "n4"}}) {
		t.Errorf("pairs without a direct link: %v, want those of n4 to n1 and n3", relays)
	}
	w.hear(events.ConnectRequested, "/node/n4", "n4", &events.LinkRequest{From: "n4", To: "n3"})
	w.run()
	if relays := w.relays(); !slices.Equal(relays, []events.Pair{{A: "n1", B: "n4"}}) {
		t.Errorf("after link.connect-requested, pairs without a direct link: %v, want n1 and n4 alone", relays)
	}
	w.join("n5")
	w.run()
	if relays := w.relays(); !slices.Equal(relays, []events.Pair{{A: "n1", B: "n4"}}) {
		t.Errorf("n5 names nobody and has a link to each; pairs without one: %v", relays)
	}
}

func TestWhatAJoinLeftOutIsForgottenWithTheNode(t *testing.T) {
	w := newWorld(t, 3)
	w.neighbours = map[string][]string{"n4": {"n2"}}
	w.join("n4")
	w.run()
	w.lose("n4")
	w.run()
	w.neighbours = nil
	w.join("n4")
	w.run()
	if relays := w.relays(); len(relays) > 0 {
		t.Errorf("n4 is back and names nobody; pairs without a direct link: %v", relays)
	}
}

func TestAJoinThatNamesNeighboursMayUseALinkThatWasDisconnected(t *testing.T) {
	w := newWorld(t, 3)
	w.hear(events.DisconnectRequested, "/user", "n2", &events.LinkRequest{From: "n2", To: "n3"})
	w.run()
	w.lose("n3")
	w.run()
	w.neighbours = map[string][]string{"n3": {"n2"}}
	w.join("n3")
	w.run()
	if relays := w.relays(); !slices.Equal(relays, []events.Pair{{A: "n1", B: "n3"}}) {
		t.Errorf("pairs without a direct link: %v, want n1 and n3 alone", relays)
	}
}

func TestJoinsLeaveOutABoundedNumberOfLinks(t *testing.T) {
	w := newWorld(t, 3)
	for i := range apartLimit - 2 {
		w.machine.state.Apart[fmt.Sprintf("a%d b", i)] = true
	}
	w.neighbours = map[string][]string{"n4": {"nobody"}}
	w.join("n4")
	w.run()
	var refusal events.Refusal
	for _, event := range w.said {
		if event.Kind == events.MembershipRefused {
			refusal = must[events.Refusal](t, event)
		}
	}
	if refusal.Node != "n4" || !strings.HasPrefix(refusal.Reason, `field "neighbours": expected at most 4096 links`) {
		t.Errorf("n4 leaves out three links where two more may be: refusal %+v", refusal)
	}
}

func TestARestartLeavesOutNoLinkTwice(t *testing.T) {
	w := newWorld(t, 3)
	w.neighbours = map[string][]string{"n4": {"n2"}}
	w.join("n4")
	w.run()
	for i := 0; len(w.machine.state.Apart) < apartLimit; i++ {
		w.machine.state.Apart[fmt.Sprintf("a%d b", i)] = true
	}
	w.process["n4"] = "n4-again"
	before := len(w.said)
	w.join("n4")
	w.run()
	for _, event := range w.said[before:] {
		if event.Kind == events.MembershipRefused {
			t.Errorf("n4 restarts with the neighbours that it had: %s", event.Data)
		}
	}
}

func TestALinkThatWasCutIsCutAgainWhereTheJoinThatNamesItComesToNothing(t *testing.T) {
	w := newWorld(t, 3)
	w.hear(events.DisconnectRequested, "/user", "n2", &events.LinkRequest{From: "n2", To: "n3"})
	w.run()
	w.lose("n3")
	w.run()
	w.neighbours = map[string][]string{"n3": {"n2"}}
	w.join("n3")
	w.lose("n3") // before anybody agreed
	w.run()
	w.neighbours = nil
	w.join("n3")
	w.tick(time.Minute) // who failed twice waits before it may join
	if relays := w.relays(); !slices.Equal(relays, []events.Pair{{A: "n2", B: "n3"}}) {
		t.Errorf("pairs without a direct link: %v, want n2 and n3, as a user wants it", relays)
	}
}
