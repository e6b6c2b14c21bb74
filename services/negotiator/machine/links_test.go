package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
)

func TestALinkThatDoesNotReallyReturnStaysLostAndIsNotCut(t *testing.T) {
	w := newWorld(t, 2)
	link := &events.LinkState{From: "n1", To: "n2"}
	w.hear(events.LinkLost, "/monitor", "n1-n2", link)
	w.run()
	w.deaf["n1"], w.deaf["n2"] = true, true
	w.hear(events.LinkRestored, "/monitor", "n1-n2", link)
	w.run()
	under := w.opened
	if len(under.Connect) != 1 {
		t.Fatalf("links to be opened: %v", under.Connect)
	}
	w.deaf = map[string]bool{}
	w.hear(events.Consented, "/node/n1", "n1", &events.Consent{Negotiation: under.Negotiation, Node: "n1",
		Incarnation: under.Members[0].Incarnation, Reason: "no answer"})
	w.run()
	w.deaf = map[string]bool{}
	w.join("n3")
	w.run()
	if relays := w.plans()[len(w.plans())-1].Relays; !slices.Equal(relays, []events.Pair{{A: "n1", B: "n2"}}) {
		t.Fatalf("the link is taken to work: pairs without one are %v", relays)
	}
	w.hear(events.LinkRestored, "/monitor", "n1-n2", link)
	w.run()
	if relays := w.plans()[len(w.plans())-1].Relays; len(relays) > 0 {
		t.Fatalf("the link was cut for good by an answer that failed: %v", relays)
	}
}

func TestALinkThatReturnsToANodeThatIsGoneIsNotNegotiated(t *testing.T) {
	w := newWorld(t, 3)
	link := &events.LinkState{From: "n1", To: "n2"}
	w.hear(events.LinkLost, "/monitor", "n1-n2", link)
	w.run()
	w.deaf["n3"] = true
	w.hear(events.LinkRestored, "/monitor", "n1-n2", link)
	w.run()
	w.lose("n2")
	w.run()
	if changes := w.opened.Changes; len(changes) != 1 || changes[0].Kind != events.ChangeFailure {
		t.Errorf("negotiated are %+v: expected the failure of n2 alone", changes)
	}
}

func TestOfALinkToANodeThatIsGoneOnlyACutIsRemembered(t *testing.T) {
	w := newWorld(t, 3)
	w.hear(events.LinkMeasured, "/monitor", "n1-n2", &events.Measurement{From: "n1", To: "n2", BandwidthBytesPerSecond: 1})
	w.hear(events.LinkLost, "/monitor", "n1-n2", &events.LinkState{From: "n1", To: "n2"})
	w.hear(events.DisconnectRequested, "/user", "n2", &events.LinkRequest{From: "n2", To: "n3"})
	w.run()
	w.lose("n2")
	w.run()
	w.join("n2")
	w.run()
	if relays := w.plans()[len(w.plans())-1].Relays; !slices.Equal(relays, []events.Pair{{A: "n2", B: "n3"}}) {
		t.Fatalf("n2 came back: its lost link may work, the link cut on purpose must not be used; got %v", relays)
	}
}

// told is which links the monitor was told of, by event.
func (w *world) told() (links []string) {
	for _, event := range w.said {
		if event.Kind != events.LinksMeasured {
			continue
		}
		var ways []string
		for _, measured := range must[events.Measured](w.t, event).Measurements {
			ways = append(ways, measured.From+"-"+measured.To)
		}
		links = append(links, strings.Join(ways, " "))
	}
	return links
}

// The monitor hears no consents: of 1,000 of them nearly all tell of no link.
func TestWhatMembersMeasuredIsToldInOneEventOnceAllHaveConsented(t *testing.T) {
	w := newWorld(t, 3)
	w.lose("n2")
	w.run()
	w.join("n4")
	w.run()
	if told := w.told(); !slices.Equal(told, []string{"n1-n4 n3-n4 n4-n1 n4-n3"}) {
		t.Errorf("told of %q, want the links of n4, once", told)
	}
}

// A negotiation that is given up has measured links all the same. Nobody measures any for the next, which stops all.
func TestWhatWasMeasuredForANegotiationThatEndedIsToldByTheNext(t *testing.T) {
	w := newWorld(t, 3)
	w.deaf["n2"] = true
	w.join("n4")
	w.run()
	w.lose("n2")
	w.run()
	if told := w.told(); !slices.Equal(told, []string{"n1-n4 n3-n4 n4-n1 n4-n3"}) {
		t.Errorf("told of %q, want the links of n4, once", told)
	}
}

func TestARequestThatChangesNothingIsAnswered(t *testing.T) {
	w := newWorld(t, 2)
	w.hear(events.ConnectRequested, "/user", "n1", &events.LinkRequest{From: "n1", To: "n2"})
	w.run()
	last := w.said[len(w.said)-1]
	if last.Kind != events.MembershipRefused || !strings.Contains(must[events.Refusal](t, last).Reason, "in use already") {
		t.Fatalf("last said %s: %s", last.Kind, last.Data)
	}
}

// measureAll has all links of the plan's nodes measured.
func (w *world) measureAll(rate func(from, to string) float64) {
	for _, from := range w.plan.Nodes {
		for _, to := range w.plan.Nodes {
			if from.Node != to.Node {
				w.hear(events.LinkMeasured, "/monitor", from.Node+"-"+to.Node, &events.Measurement{
					From: from.Node, To: to.Node, RoundTripSeconds: 1e-3, BandwidthBytesPerSecond: rate(from.Node, to.Node),
				})
			}
		}
	}
}

// oneIsSlow is all links but one as usual.
func oneIsSlow(from, to string) float64 {
	if from == "n3" && to == "n4" {
		return 1e6
	}
	return 1e8
}

// listed are links by their ends.
func listed(links []events.Link) (ends []string) {
	for _, link := range links {
		ends = append(ends, link.From+" "+link.To)
	}
	return ends
}

// lastAsked is the last request of a kind.
func lastAsked[T any, P interface {
	*T
	events.Payload
}](w *world, kind events.Kind) T {
	w.t.Helper()
	for _, event := range slices.Backward(w.said) {
		if event.Kind == kind {
			return must[T, P](w.t, event)
		}
	}
	w.t.Fatalf("no %s was said", kind)
	panic("unreachable")
}

// 66 nodes have 4,290 directions, one of which is slow, one lost and one cut.
func TestOfManyLinksARequestListsThoseThatAreNotUsual(t *testing.T) {
	w := newWorld(t, 66)
	w.measureAll(oneIsSlow)
	w.hear(events.LinkLost, "/monitor", "n5-n6", &events.LinkState{From: "n5", To: "n6"})
	w.hear(events.DisconnectRequested, "/user", "n7", &events.LinkRequest{From: "n7", To: "n8"})
	w.run()
	request := lastAsked[events.PlanRequest](w, events.PlanRequested)
	if got, want := listed(request.Links), []string{"n3 n4", "n5 n6", "n7 n8", "n8 n7"}; !slices.Equal(got, want) {
		t.Errorf("%v are listed, want %v", got, want)
	}
	if usual := request.Usual; usual == nil || usual.RoundTripSeconds != 1e-3 || usual.BandwidthBytesPerSecond != 1e8 {
		t.Errorf("the usual link is %+v", usual)
	}
}

// Nodes n1 to n8 stand here and all others there: 928 of 4,290 directions are between the sites, and all slow but one.
func TestOfManyLinksThoseAreListedThatAreNotUsualAnywhereOrBetweenTheirSites(t *testing.T) {
	w := newEmptyWorld(t, 66, 0)
	for i := range 66 {
		w.site[fmt.Sprintf("n%d", i+1)] = [2]string{"here", "there"}[min(1, i/8)]
	}
	w.begin(66)
	w.measureAll(func(from, to string) float64 {
		if w.site[from] != w.site[to] && (from != "n8" || to != "n9") {
			return 1e6
		}
		return 1e8
	})
	w.hear(events.DisconnectRequested, "/user", "n6", &events.LinkRequest{From: "n6", To: "n7"})
	w.run()
	request := lastAsked[events.PlanRequest](w, events.PlanRequested)
	if got := listed(request.Links); len(got) != 2+928 || !slices.Contains(got, "n8 n9") || !slices.Contains(got, "n9 n8") {
		t.Errorf("%d are listed", len(got))
	}
	for _, way := range [][2]string{{"here", "there"}, {"there", "here"}} {
		if got := request.Usual.Link(way[0], way[1]).BandwidthBytesPerSecond; got != 1e6 {
			t.Errorf("from %s to %s a link is taken for %v", way[0], way[1], got)
		}
	}
}

func TestTheRestorerIsToldWhatIsUsualHoweverFewLinksAreKnown(t *testing.T) {
	w := newWorld(t, 4)
	w.measureAll(oneIsSlow)
	w.hear(events.DisconnectRequested, "/user", "n1", &events.LinkRequest{From: "n1", To: "n2"})
	w.run()
	request := lastAsked[events.RestorationRequest](w, events.RestorationAsked)
	if len(request.Links) != 12 || request.Usual == nil || request.Usual.BandwidthBytesPerSecond != 1e8 {
		t.Errorf("%d links are listed, and the usual one is %+v", len(request.Links), request.Usual)
	}
}

func TestWhatIsMeasuredOfLinksOfNobodyIsNotKept(t *testing.T) {
	w := newWorld(t, 2)
	w.lose("n2")
	w.run()
	empty, _ := w.machine.Snapshot()
	for i := range 100 {
		w.hear(events.LinkMeasured, "/monitor", "x",
			&events.Measurement{From: fmt.Sprint("g", i), To: "n2", BandwidthBytesPerSecond: 1})
	}
	w.run()
	if snapshot, _ := w.machine.Snapshot(); len(snapshot) != len(empty) {
		t.Fatalf("%d bytes are remembered of links to nodes that are gone", len(snapshot)-len(empty))
	}
}
