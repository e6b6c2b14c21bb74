package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
)

// Fault 14.
func TestAnObjectionToAFailureEndsWithTheObjector(t *testing.T) {
	w := newWorld(t, 4)
	w.mute[events.NegotiationOpened] = true
	w.lose("n4")
	w.run()
	opened := 0
	for range 1000 {
		if w.opened == nil {
			break
		}
		opened++
		for i, member := range w.opened.Members {
			w.hear(events.Consented, "/node/"+member.Node, member.Node, &events.Consent{Negotiation: w.opened.Negotiation,
				Node: member.Node, Incarnation: member.Incarnation, Accepted: i > 0, Reason: "not now"})
		}
		w.run()
	}
	if opened > 4 || len(w.refusals("n1")) != 1 {
		t.Fatalf("%d negotiations, refused %+v", opened, w.refusals("n1"))
	}
}

// joinsAgainst has a node ask for a place, to which n1 objects.
func (w *world) joinsAgainst(node, objection string) {
	w.mute[events.NegotiationOpened] = true
	w.join(node)
	w.run()
	w.hear(events.Consented, "/node/n1", "n1", &events.Consent{
		Negotiation: w.opened.Negotiation, Node: "n1", Incarnation: w.process["n1"], Reason: objection})
	w.run()
	w.mute[events.NegotiationOpened] = false
}

func TestAMemberThatObjectsToAJoinHasItRefused(t *testing.T) {
	w := newWorld(t, 2)
	w.joinsAgainst("n3", "unknown institution")
	if refused := w.refusals("n3"); len(refused) != 1 || w.opened != nil ||
		!strings.Contains(refused[0].Reason, "n1 does not consent: unknown institution") {
		t.Fatalf("refused %+v", refused)
	}
}

func TestANodeThatIsRefusedAgainAndAgainWaitsForNoTurnOnceItMayJoin(t *testing.T) {
	w := newWorld(t, 2)
	for range 8 {
		w.joinsAgainst("n3", "not in these hours")
	}
	w.join("n3")
	w.run()
	if refused := w.refusals("n3"); len(refused) != 8 || w.nodes() != "n1 n2 n3" {
		t.Fatalf("refused %+v, nodes %q", refused, w.nodes())
	}
}

// Fault 21.
func TestAChangeThatCannotBeDoesNotTakeInnocentOnesWithIt(t *testing.T) {
	w := newWorld(t, 2)
	w.mute[events.PlanRequested] = true
	w.hear(events.LeaveRequested, "/node/n1", "n1", &events.Leave{Node: "n1"})
	for i := range 4 {
		w.join(fmt.Sprintf("n%d", 6+i))
	}
	w.run()
	for range 20 {
		if w.opened == nil {
			break
		}
		requests := w.requests()
		request := requests[len(requests)-1]
		if request.Nodes[0].Node == "n1" {
			w.propose(request)
		} else {
			w.hear(events.PlanRefused, "/planner", "p",
				&events.Failure{Negotiation: request.Negotiation, Reason: "without n1 layer 3 does not fit anybody's memory"})
		}
		w.run()
	}
	if refused := w.refusals("n1"); len(refused) != 1 || refused[0].Refused != events.ChangeLeave {
		t.Fatalf("refused n1 %+v", refused)
	}
	if w.nodes() != "n1 n2 n6 n7 n8 n9" || len(w.refusals("n6")) > 0 {
		t.Fatalf("nodes %q, refused n6 %+v", w.nodes(), w.refusals("n6"))
	}
}

// refusePlan has the planner have no answer to the last question.
func (w *world) refusePlan(reason string) {
	requests := w.requests()
	w.hear(events.PlanRefused, "/planner", "p", &events.Failure{Negotiation: requests[len(requests)-1].Negotiation, Reason: reason})
	w.run()
}

func TestWhoComesFirstAfterAFailureOfAllIsNotRefusedForWantOfOthers(t *testing.T) {
	w := newWorld(t, 3)
	for _, node := range []string{"n1", "n2", "n3"} {
		w.lose(node)
	}
	w.run()
	w.mute[events.PlanRequested] = true
	w.join("n1")
	w.run()
	w.refusePlan("1 node is too few for 2 stages")
	if refused := w.refusals("n1"); len(refused) > 1 || w.opened != nil { // the first says that it was lost
		t.Fatalf("refused n1 %+v, open %v", refused, w.opened)
	}
	w.join("n2")
	w.run()
	if requests := w.requests(); len(requests[len(requests)-1].Nodes) != 2 {
		t.Fatalf("asked for a plan of %+v", requests[len(requests)-1].Nodes)
	}
}

func TestAJoinThatCannotBeIsRefusedOnceTheOthersTrainAgain(t *testing.T) {
	w := newWorld(t, 3)
	w.mute[events.PlanRequested] = true
	w.lose("n3")
	w.join("n9")
	w.run()
	for range 20 {
		if w.opened == nil {
			break
		}
		requests := w.requests()
		request := requests[len(requests)-1]
		if isJoined := slices.ContainsFunc(request.Nodes, func(device events.Device) bool { return device.Node == "n9" }); isJoined {
			w.refusePlan("n9 has no memory")
		} else {
			w.propose(request)
			w.run()
		}
	}
	if refused := w.refusals("n9"); w.nodes() != "n1 n2" || len(refused) != 1 || refused[0].Refused != events.ChangeJoin {
		t.Fatalf("nodes %q, refused n9 %+v", w.nodes(), refused)
	}
}

func TestARefusalOfAJoinIsForTheProcessThatAsked(t *testing.T) {
	w := newWorld(t, 2)
	w.joinsAgainst("n3", "not in these hours")
	if refused := w.refusals("n3"); len(refused) != 1 || refused[0].Incarnation != w.process["n3"] || refused[0].Incarnation == "" {
		t.Errorf("the process %q is refused: %+v", w.process["n3"], refused)
	}
}
