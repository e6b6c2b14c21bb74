package machine

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

func TestTheFirstPlanWaitsForAsManyNodesAsTheJobNeeds(t *testing.T) {
	w := newEmptyWorld(t, 1, 0)
	w.stages = 3
	for _, node := range []string{"n1", "n2"} {
		w.join(node)
		w.run()
		w.tick(time.Hour)
	}
	if held := w.held(); held == nil || !strings.HasSuffix(held.Reason, "2 joined, the job needs at least 3") {
		t.Errorf("held %+v", held)
	}
	w.join("n3")
	w.run()
	if refused := slices.ContainsFunc(w.said, isRefusal); refused || w.nodes() != "n1 n2 n3" {
		t.Errorf("nodes %q, somebody refused: %v", w.nodes(), refused)
	}
}

func isRefusal(event events.Event) bool { return event.Kind == events.MembershipRefused }

func TestNodesThatStartTogetherAreNotToldThatTheyWait(t *testing.T) {
	w := newEmptyWorld(t, 3, 0)
	for _, node := range []string{"n1", "n2", "n3"} {
		w.join(node)
		w.run()
		w.tick(time.Second)
	}
	if held := w.held(); held != nil || w.nodes() != "n1 n2 n3" {
		t.Errorf("nodes %q, held %+v", w.nodes(), held)
	}
}

func TestANodeThatIsRestartedForEverDoesNotKeepOthersFromHearingThatTheyWait(t *testing.T) {
	w := newEmptyWorld(t, 3, 0)
	w.join("n1")
	for range 2 {
		w.join("n2")
		w.tick(2 * time.Second)
	}
	if held := w.held(); held == nil || !strings.HasPrefix(held.Reason, "waiting for more nodes: 2 joined") {
		t.Errorf("held %+v", held)
	}
}

func TestWhoJoinsAfterAllWhoJoinedAreGoneHearsThatItWaits(t *testing.T) {
	w := newEmptyWorld(t, 3, 0)
	w.join("n1")
	w.lose("n1")
	w.tick(time.Hour)
	w.join("n1")
	w.tick(time.Hour)
	if held := w.held(); held == nil || !strings.HasPrefix(held.Reason, "waiting for more nodes: 1 joined") {
		t.Errorf("held %+v", held)
	}
}

func TestWhereThereIsNoFirstPlanYetNobodyIsRefusedAndWhoComesNextIsTriedWithAll(t *testing.T) {
	w := newEmptyWorld(t, 1, 0)
	w.mute[events.PlanRequested] = true
	for _, node := range []string{"n1", "n2"} {
		w.join(node)
		w.run()
		w.hear(events.PlanRefused, "/planner", "p", &events.Failure{Negotiation: w.opened.Negotiation, Reason: "too little memory"})
		w.run()
		if held := w.held(); held == nil || !strings.Contains(held.Reason, "too little memory") {
			t.Fatalf("held %+v", held)
		}
	}
	w.mute[events.PlanRequested] = false
	w.join("n3")
	w.run()
	if refused := slices.ContainsFunc(w.said, isRefusal); refused || w.nodes() != "n1 n2 n3" {
		t.Errorf("nodes %q, somebody refused: %v", w.nodes(), refused)
	}
}

func TestWhoCorrectsItsJobBeforeTheFirstPlanIsNotHeldToTheMistake(t *testing.T) {
	for others, corrected := range map[string]bool{"": true, "n2": false} {
		w := newEmptyWorld(t, 3, 0)
		w.replicas = events.AlikeReplicas
		w.join("n1")
		if others != "" {
			w.join(others)
		}
		w.replicas = ""
		w.join("n1")
		w.run()
		if refused := w.refusals("n1"); (len(refused) == 0) != corrected {
			t.Errorf("others: %q, refused %+v", others, refused)
		}
	}
}
