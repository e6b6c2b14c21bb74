package machine

import (
	"testing"

	"github.com/reknit/reknit/events"
)

// plannerAsked reports whether the planner was asked since the last opening, while nobody has consented.
func (w *world) plannerAsked() bool {
	for i := len(w.said) - 1; i >= 0 && w.said[i].Kind != events.NegotiationOpened; i-- {
		if w.said[i].Kind == events.PlanRequested {
			return true
		}
	}
	return false
}

func TestThePlannerIsAskedWithTheOpeningUnlessALinkIsMeasuredFirst(t *testing.T) {
	for change, atOnce := range map[string]bool{"leave": true, "disconnect": true, "failure": true, "join": false, "connect": false} {
		w := newWorld(t, 3)
		if change == "connect" {
			w.hear(events.DisconnectRequested, "/user", "n1", &events.LinkRequest{From: "n1", To: "n2"})
			w.run()
		}
		w.mute[events.NegotiationOpened] = true
		switch change {
		case "leave":
			w.hear(events.LeaveRequested, "/node/n3", "n3", &events.Leave{Node: "n3"})
		case "disconnect":
			w.hear(events.DisconnectRequested, "/user", "n1", &events.LinkRequest{From: "n1", To: "n2"})
		case "connect":
			w.hear(events.ConnectRequested, "/user", "n1", &events.LinkRequest{From: "n1", To: "n2"})
		case "failure":
			w.lose("n3")
		case "join":
			w.join("n4")
		}
		w.run()
		if w.opened == nil {
			t.Fatalf("%s: nothing is negotiated", change)
		}
		if w.plannerAsked() != atOnce {
			t.Errorf("%s: the planner was asked %v", change, w.plannerAsked())
		}
	}
}

// Of a thousand members sixteen measure: the planner searches while the others consent.
func TestThePlannerIsAskedOnceThoseWhoMeasureHaveConsented(t *testing.T) {
	w := newWorld(t, 4)
	w.hear(events.DisconnectRequested, "/user", "n1", &events.LinkRequest{From: "n1", To: "n2"})
	w.run()
	w.deaf["n4"], w.deaf["n2"] = true, true
	w.hear(events.ConnectRequested, "/user", "n1", &events.LinkRequest{From: "n1", To: "n2"})
	w.run()
	if w.plannerAsked() {
		t.Fatal("the planner was asked before n2 had measured the link")
	}
	opened, plans := *w.opened, len(w.plans())
	delete(w.deaf, "n2")
	w.consent(opened)
	w.run()
	if !w.plannerAsked() {
		t.Fatal("the planner waits for n4, which measures nothing")
	}
	w.listen()
	asked := 0
	for _, event := range w.said {
		if event.Kind == events.PlanRequested && event.Subject == opened.Negotiation {
			asked++
		}
	}
	if len(w.plans()) != plans+1 || asked != 1 {
		t.Errorf("%d plans after %d, the planner was asked %d times", len(w.plans()), plans, asked)
	}
}
