package machine

import (
	"fmt"
	"testing"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

// A rack that died was negotiated node by node: 32 of 2,048 had not been done without after 90 s.
func TestHoweverManyAreLostTogetherTheOthersConsentTwice(t *testing.T) {
	w := newWorld(t, 40)
	before := w.openings()
	for i := range 20 {
		w.lose(fmt.Sprintf("n%d", i+1))
	}
	w.run()
	if opened := w.openings() - before; opened > 2 || len(w.plans()) != 2 || len(w.plan.Nodes) != 20 {
		t.Fatalf("%d openings, %d plans, the last of %d nodes", opened, len(w.plans()), len(w.plan.Nodes))
	}
}

// Its word would be waited for in vain: nobody is left who has not consented.
func TestTheLastWhoseConsentIsMissingIsLostAndTheOthersGoOn(t *testing.T) {
	w := newWorld(t, 4)
	w.deaf["n3"] = true
	w.lose("n4")
	w.run()
	w.lose("n3")
	w.run()
	if len(w.plans()) != 2 || len(w.plan.Nodes) != 2 {
		t.Fatalf("%d plans, the last of %d nodes", len(w.plans()), len(w.plan.Nodes))
	}
}

// What comes while all consent is put off. It is not forgotten where the planner has no answer without it.
func TestWhoJoinsWhileAllConsentIsTakenUpWhereThePlannerHasNoAnswer(t *testing.T) {
	w := newWorld(t, 3)
	w.mute[events.NegotiationOpened], w.mute[events.PlanRequested] = true, true
	w.lose("n3")
	w.run()
	w.join("n4")
	w.run()
	first := w.opened.Negotiation
	w.hear(events.PlanRefused, "/planner", "p", &events.Failure{Negotiation: first, Reason: "too little memory"})
	w.run()
	if w.opened == nil || w.opened.Negotiation == first || w.held() != nil {
		t.Fatalf("opened %+v, held %+v", w.opened, w.held())
	}
	if joins := w.opened.Changes[len(w.opened.Changes)-1]; joins.Kind != events.ChangeJoin || joins.Node != "n4" {
		t.Errorf("negotiated are %+v", w.opened.Changes)
	}
}

// Nobody stands still for long because small changes follow each other, and nobody who may have what is missing is left
// waiting: who came after the last renewal is taken up where there is no plan without it.
func TestWhoCameAfterTheLastRenewalIsTakenUpBeforeTheClusterHolds(t *testing.T) {
	w := newEmptyWorld(t, 1, 0)
	w.mute[events.PlanRequested] = true
	w.join("n1")
	w.run()
	for i := range protocol.MostRenewals {
		before := w.opened.Negotiation
		w.join(fmt.Sprint("n", 2+i))
		w.run()
		if w.opened.Negotiation == before {
			t.Fatalf("join %d did not begin the negotiation anew", i+1)
		}
	}
	last := w.opened.Negotiation
	w.join("late")
	w.run()
	if w.opened.Negotiation != last {
		t.Error("a negotiation begins anew again and again for those who come")
	}
	w.hear(events.PlanRefused, "/planner", "p", &events.Failure{Negotiation: last, Reason: "too little memory"})
	w.run()
	if w.opened == nil || w.opened.Negotiation == last || w.held() != nil {
		t.Fatalf("opened %+v, held %+v", w.opened, w.held())
	}
	if joins := w.opened.Changes[len(w.opened.Changes)-1]; joins.Node != "late" {
		t.Errorf("negotiated are %+v", w.opened.Changes)
	}
}
