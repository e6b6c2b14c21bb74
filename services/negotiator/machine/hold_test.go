package machine

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

func TestTheLastOnesMayNotLeave(t *testing.T) {
	w := newWorld(t, 2)
	for _, node := range []string{"n1", "n2"} {
		w.hear(events.LeaveRequested, "/node/"+node, node, &events.Leave{Node: node})
	}
	w.run()
	if w.nodes() == "" || w.opened != nil {
		t.Fatalf("nodes %q, under way: %v", w.nodes(), w.opened)
	}
	last := w.said[len(w.said)-1]
	refused := slices.ContainsFunc(w.said, func(e events.Event) bool {
		if e.Kind != events.MembershipRefused {
			return false
		}
		refusal := must[events.Refusal](t, e)
		return refusal.Refused == events.ChangeLeave && strings.Contains(refusal.Reason, "no node would be left") &&
			strings.Contains(refusal.Reason, "n1 writes no snapshots")
	})
	if !refused {
		t.Fatalf("last said %s: %s", last.Kind, last.Data)
	}
}

func TestAClusterThatIsHeldIsTriedAgainAndAgain(t *testing.T) {
	w := newWorld(t, 2)
	w.mute[events.PlanRequested] = true
	w.lose("n1")
	w.run()
	for range 3 {
		if w.opened == nil {
			t.Fatal("it was not tried again")
		}
		w.hear(events.PlanRefused, "/planner", "p",
			&events.Failure{Negotiation: w.opened.Negotiation, Reason: "the store is away"})
		w.run()
		w.tick(2 * time.Minute)
	}
}

func TestAClusterThatIsHeldIsTriedAgain(t *testing.T) {
	w := newWorld(t, 2)
	w.mute[events.PlanRequested] = true
	w.lose("n1")
	w.run()
	w.hear(events.PlanRefused, "/planner", "p",
		&events.Failure{Negotiation: w.opened.Negotiation, Reason: "the store is away"})
	w.run()
	if w.held() == nil {
		t.Fatal("not held")
	}
	w.mute[events.PlanRequested] = false
	w.tick(31 * time.Second)
	if w.nodes() != "n2" {
		t.Fatalf("nodes %q", w.nodes())
	}
}

// afterADeferral is a cluster whose n1 was lost and is waited for.
func afterADeferral(t *testing.T) *world {
	w := newWorld(t, 3)
	w.isDeferred()
	if len(w.plans()) != 1 {
		t.Fatalf("%d plans", len(w.plans()))
	}
	return w
}

// isDeferred has n1 lost, and the planner wait for it.
func (w *world) isDeferred() {
	w.t.Helper()
	w.mute[events.PlanRequested] = true
	w.hear(events.NodeLost, "/monitor", "n1", &events.NodeState{
		Node: "n1", Incarnation: w.process["n1"], SecondsUntilReturn: 7,
	})
	w.run()
	if asked := w.requests(); asked[len(asked)-1].SecondsUntilReturn != 7 {
		w.t.Fatalf("the planner is not told when n1 is expected: %+v", asked[len(asked)-1])
	}
	w.mute[events.PlanRequested] = false
	w.hear(events.PlanDeferred, "/planner", "p",
		&events.Deferral{Negotiation: w.opened.Negotiation, Reason: "n1 is soon back", Seconds: 14})
	w.run()
	if last := w.said[len(w.said)-1]; last.Kind != events.ClusterHeld {
		w.t.Fatalf("last said %s", last.Kind)
	}
}

func TestALostNodeThatIsWaitedForIsPlannedForAsSoonAsItIsBack(t *testing.T) {
	w := afterADeferral(t)
	w.tick(6 * time.Second)
	w.join("n1")
	w.run()
	if plans := w.plans(); w.nodes() != "n1 n2 n3" || len(plans) != 2 || plans[1].Generation != 2 {
		t.Fatalf("nodes %q, plans %+v", w.nodes(), plans)
	}
}

func TestALostNodeThatIsWaitedForNeedNotWaitForItsTurnHoweverOftenItRestarted(t *testing.T) {
	for _, back := range []string{"n1", "n9"} { // nobody waits for n9
		w := newWorld(t, 3)
		for range 6 {
			w.lose(back)
			w.join(back)
			w.run()
		}
		w.tick(time.Minute)
		w.lose("n9")
		w.run()
		before := len(w.plans())
		w.isDeferred()
		w.join(back)
		w.run()
		if taken := len(w.plans()) > before; taken != (back == "n1") {
			t.Errorf("%s is taken at once: %v; nodes %q", back, taken, w.nodes())
		}
	}
}

func TestALostNodeIsWaitedForOnceAndNoLongerThanThePlannerSaid(t *testing.T) {
	w := afterADeferral(t)
	w.tick(13 * time.Second)
	if len(w.plans()) != 1 {
		t.Fatal("planned too early")
	}
	w.tick(2 * time.Second)
	asked := w.requests()
	if w.nodes() != "n2 n3" || asked[len(asked)-1].SecondsUntilReturn != 0 {
		t.Fatalf("nodes %q, last asked %+v", w.nodes(), asked[len(asked)-1])
	}
	w.hear(events.NodeLost, "/monitor", "n2",
		&events.NodeState{Node: "n2", Incarnation: w.process["n2"], SecondsUntilReturn: 7})
	w.run()
	if asked := w.requests(); asked[len(asked)-1].SecondsUntilReturn != 7 {
		t.Fatal("the next loss is never waited for")
	}
}

func TestADeferralThatNobodyAskedForRefusesTheChange(t *testing.T) {
	w := newWorld(t, 2)
	w.mute[events.PlanRequested] = true
	w.join("n3")
	w.run()
	w.hear(events.PlanDeferred, "/planner", "p",
		&events.Deferral{Negotiation: w.opened.Negotiation, Reason: "wait", Seconds: 5})
	w.run()
	if w.held() != nil || len(w.refusals("n3")) != 1 {
		t.Fatalf("held %v, refused %v", w.held(), w.refusals("n3"))
	}
}

func TestALayerNobodyHoldsHoldsTheClusterAndSaysWhich(t *testing.T) {
	w := newWorld(t, 2)
	w.deaf["n2"] = true
	w.step = 9
	w.lose("n1")
	w.run()
	under := w.opened
	w.hear(events.Consented, "/node/n2", "n2", &events.Consent{
		Negotiation: under.Negotiation, Node: "n2", Incarnation: under.Members[0].Incarnation, Accepted: true, Step: 9,
		Holdings: []events.Holding{{Units: events.Range{First: 0, End: 2}, Steps: []uint64{9}}},
	})
	w.run()
	last := w.said[len(w.said)-1]
	if last.Kind != events.ClusterHeld || !strings.Contains(must[events.Hold](t, last).Reason, "holds layer 2,") {
		t.Fatalf("last said %s: %s", last.Kind, last.Data)
	}
}

func TestAHeldClusterIsTriedLessAndLessOften(t *testing.T) {
	w := newWorld(t, 2)
	w.lose("n1")
	w.lose("n2")
	w.run()
	before := len(w.said)
	w.tick(8 * time.Hour)
	if written := len(w.said) - before; written > 150 {
		t.Fatalf("a cluster that was held for eight hours wrote %d facts", written)
	}
}

// What it holds the leaver would give, but nobody is there to take it, nor to bring the layers of those who died.
func TestTheLastNodeThatWantsToLeaveHasNotTheSameAskedAgainAtOnce(t *testing.T) {
	w := newWorld(t, 3)
	w.lose("n2")
	w.lose("n3")
	w.hear(events.LeaveRequested, "/node/n1", "n1", &events.Leave{Node: "n1"})
	w.lacks = 1
	for before := w.openings(); len(w.queue) > 0; {
		if event := w.queue[0]; w.openings() > before+9 {
			t.Fatalf("opened %d times without a pause, last by %s", w.openings()-before, event.Kind)
		}
		w.hearNext()
	}
	if held := w.held(); held == nil {
		t.Fatal("expected that the cluster holds")
	}
}
