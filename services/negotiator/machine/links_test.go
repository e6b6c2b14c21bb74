package machine

import (
	"fmt"
	"math/rand/v2"
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

func TestARequestThatChangesNothingIsAnswered(t *testing.T) {
	w := newWorld(t, 2)
	w.hear(events.ConnectRequested, "/user", "n1", &events.LinkRequest{From: "n1", To: "n2"})
	w.run()
	last := w.said[len(w.said)-1]
	if last.Kind != events.MembershipRefused || !strings.Contains(must[events.Refusal](t, last).Reason, "in use already") {
		t.Fatalf("last said %s: %s", last.Kind, last.Data)
	}
}

// measureAll has all links of the plan's nodes measured as usual, but one.
func (w *world) measureAll() {
	for _, from := range w.plan.Nodes {
		for _, to := range w.plan.Nodes {
			rate := 1e8
			if from.Node == "n3" && to.Node == "n4" {
				rate = 1e6
			}
			if from.Node != to.Node {
				w.hear(events.LinkMeasured, "/monitor", from.Node+"-"+to.Node,
					&events.Measurement{From: from.Node, To: to.Node, RoundTripSeconds: 1e-3, BandwidthBytesPerSecond: rate})
			}
		}
	}
}

// listed are the links that the last request of a kind listed.
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

var usualLink = events.Usual{RoundTripSeconds: 1e-3, BandwidthBytesPerSecond: 1e8}

// Of 34 nodes there are 1,122 directions, one of which is slow, one lost and one cut.
func TestOfManyLinksARequestListsThoseThatAreNotUsual(t *testing.T) {
	w := newWorld(t, 34)
	w.measureAll()
	w.hear(events.LinkLost, "/monitor", "n5-n6", &events.LinkState{From: "n5", To: "n6"})
	w.hear(events.DisconnectRequested, "/user", "n7", &events.LinkRequest{From: "n7", To: "n8"})
	w.run()
	request := lastAsked[events.PlanRequest](w, events.PlanRequested)
	if got, want := listed(request.Links), []string{"n3 n4", "n5 n6", "n7 n8", "n8 n7"}; !slices.Equal(got, want) {
		t.Errorf("%v are listed, want %v", got, want)
	}
	if request.Usual == nil || *request.Usual != usualLink {
		t.Errorf("the usual link is %+v", request.Usual)
	}
}

// Of what is known between two sites a request lists a sample: whoever reads it finds the median of all.
func TestWhatARequestListsBetweenTwoSitesHasTheMedianOfWhatIsKnownThere(t *testing.T) {
	random, site := rand.New(rand.NewPCG(1, 2)), map[string]string{}
	for i := range 60 {
		site[fmt.Sprintf("n%02d", i)] = fmt.Sprintf("s%d", i%3)
	}
	slow := map[string]float64{"s0s1": 1, "s1s0": 0.1} // of the links from one to the other; of others a fifth
	for range 50 {
		var links []events.Link
		for from := range site {
			for to := range site {
				share, told := slow[site[from]+site[to]]
				if !told {
					share = 0.2
				}
				rate := 1e8 * (1 + random.Float64()/2)
				if random.Float64() < share {
					rate /= 20
				}
				if from != to && random.Float64() < 0.3 {
					links = append(links, events.Link{Measurement: events.Measurement{
						From: from, To: to, RoundTripSeconds: 1e-3, BandwidthBytesPerSecond: rate,
					}})
				}
			}
		}
		usual, _ := events.UsualOf(links)
		listed := unusual(slices.Clone(links), &usual, site)
		all, read := events.UsualLinksOf(links, usual, site), events.UsualLinksOf(listed, usual, site)
		for _, ends := range [][2]string{{"s0", "s1"}, {"s1", "s0"}, {"s0", "s2"}, {"s2", "s1"}, {"s0", "s0"}} {
			want, got := all.Between(ends[0], ends[1]), read.Between(ends[0], ends[1])
			if !want.StandsFor(got.Measurement()) {
				t.Fatalf("from %s to %s: %+v is read, and known %+v", ends[0], ends[1], got, want)
			}
		}
		if len(listed) > len(links)*3/4 {
			t.Fatalf("%d of %d links are listed", len(listed), len(links))
		}
	}
}

func TestTheRestorerIsToldWhatIsUsualHoweverFewLinksAreKnown(t *testing.T) {
	w := newWorld(t, 4)
	w.measureAll()
	w.hear(events.DisconnectRequested, "/user", "n1", &events.LinkRequest{From: "n1", To: "n2"})
	w.run()
	request := lastAsked[events.RestorationRequest](w, events.RestorationAsked)
	if len(request.Links) != 12 || request.Usual == nil || *request.Usual != usualLink {
		t.Errorf("%d links are listed, and the usual one is %+v", len(request.Links), request.Usual)
	}
}
