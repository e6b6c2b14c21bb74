package machine

import (
	"testing"

	"github.com/reknit/reknit/events"
)

// Fault 13: one node's word took everybody from step 1000 to 0, or to 5,000,000.
func TestOneNodesWordTakesNobodyToAStepThatCannotBe(t *testing.T) {
	for _, step := range []uint64{0, 5_000_000} {
		w := newWorld(t, 4)
		w.step, w.transfer = 1000, true
		w.join("n5")
		w.run() // a plan that takes over at step 1002
		w.step = 1010
		w.mute[events.NegotiationOpened] = true
		w.lose("n5")
		w.run()
		for _, member := range w.opened.Members {
			consent := &events.Consent{Negotiation: w.opened.Negotiation, Node: member.Node, Incarnation: member.Incarnation,
				Accepted: true, Step: 1010,
				Holdings: []events.Holding{{Units: events.Range{First: 0, End: 3}, Steps: []uint64{1010, 1009}}}}
			if member.Node == "n3" {
				consent.Step, consent.Holdings[0].Steps = step, []uint64{step}
			}
			w.hear(events.Consented, "/node/"+member.Node, member.Node, consent)
		}
		w.mute[events.NegotiationOpened] = false
		w.run()
		if last := w.plans()[len(w.plans())-1]; last.ResumeStep != 1010 {
			t.Fatalf("n3 says step %d, and everybody resumes at %d", step, last.ResumeStep)
		}
	}
}

// Fault 19.
func TestAPromiseThatNobodyNearCanKeepIsNotWaitedFor(t *testing.T) {
	w := newWorld(t, 3)
	w.step = 100
	w.mute[events.Prepared] = true
	w.hear(events.DisconnectRequested, "/user", "n1", &events.LinkRequest{From: "n1", To: "n2"})
	w.run()
	for _, member := range w.opened.Members {
		stop := uint64(102)
		if member.Node == "n3" {
			stop = 1<<53 - 1
		}
		w.hear(events.Promised, "/node/"+member.Node, member.Node,
			&events.Promise{Negotiation: w.opened.Negotiation, Node: member.Node, StopStep: stop})
	}
	w.mute[events.Prepared] = false
	w.run()
	if last := w.plans()[len(w.plans())-1]; last.ResumeStep > 103 || len(w.refusals("n3")) != 1 {
		t.Fatalf("the plan takes over at step %d, refused %v", last.ResumeStep, w.refusals("n3"))
	}
}

// Fault 15: CloudEvents makes source and id unique together, not the id.
func TestTwoSourcesMayNumberTheirEventsAlike(t *testing.T) {
	w := newWorld(t, 3)
	w.mute[events.NegotiationOpened] = true
	var negotiations []string
	for _, node := range []string{"n1", "n2"} {
		w.hear(events.LeaveRequested, events.NodeSource(node), node, &events.Leave{Node: node})
		w.queue[len(w.queue)-1].ID = "1"
		w.run()
		negotiations = append(negotiations, w.opened.Negotiation)
	}
	ids := map[string]bool{}
	for _, event := range w.said {
		if ids[event.ID] {
			t.Errorf("two facts have the id %s, the second is a %s", event.ID, event.Kind)
		}
		ids[event.ID] = true
	}
	if negotiations[0] == negotiations[1] {
		t.Errorf("two negotiations are called %s", negotiations[0])
	}
}
