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
	for _, least := range []int{1, 2} {
		w := newEmptyWorld(t, least, 0)
		w.batch = 24
		w.join("n1")
		w.batch = 0
		w.join("n1")
		w.join("n2")
		w.run()
		if slices.ContainsFunc(w.said, isRefusal) || w.nodes() != "n1 n2" {
			t.Errorf("nodes %q of a first plan of at least %d", w.nodes(), least)
		}
	}
}

// joins has nodes join with a batch of so many samples.
func (w *world) joins(batch int, nodes ...string) {
	w.batch = batch
	for _, node := range nodes {
		w.join(node)
	}
	w.run()
}

func TestWhoComesFirstWithAnotherJobThanMostDoesNotDefineIt(t *testing.T) {
	w := newEmptyWorld(t, 3, 0)
	w.joins(24, "n1")
	w.joins(12, "n2")
	w.tick(time.Minute)
	refused := slices.ContainsFunc(w.said, isRefusal)
	if refused || !strings.Contains(w.held().Reason, `their jobs differ, field "job.globalBatch"`) {
		t.Fatalf("refused %t, held %+v: expected that two of three wait, and hear in what they differ", refused, w.held())
	}
	w.joins(12, "n3")
	refusals := w.refusals("n1")
	if len(refusals) != 1 || !refusals[0].OtherJob || refusals[0].Incarnation != w.process["n1"] ||
		!strings.Contains(refusals[0].Reason, `field "job.globalBatch": expected 12`) ||
		!strings.Contains(refusals[0].Reason, "the job of n2, n3, 2 of the 3 nodes") {
		t.Fatalf("refused %+v", refusals)
	}
	w.tick(time.Minute)
	if len(w.plans()) != 0 || !strings.HasPrefix(w.held().Reason, "waiting for more nodes: 2 joined") {
		t.Errorf("held %+v: expected that the first plan waits for three", w.held())
	}
	w.joins(12, "n4")
	if w.nodes() != "n2 n3 n4" || w.plans()[0].Data.GlobalBatch != 12 {
		t.Errorf("nodes %q", w.nodes())
	}
}

func TestWhereNoJobIsThatOfMostNobodyIsRefusedAndTheNextDecides(t *testing.T) {
	w := newEmptyWorld(t, 2, 0)
	w.joins(24, "n1")
	w.joins(12, "n2")
	w.tick(time.Hour)
	for _, says := range []string{`field "job.globalBatch": 24 at n1, 12 at n2`, "start more"} {
		if !strings.Contains(w.held().Reason, says) {
			t.Errorf("held %q: expected that it says %q", w.held().Reason, says)
		}
	}
	if slices.ContainsFunc(w.said, isRefusal) || len(w.plans()) > 0 {
		t.Error("somebody is refused, or there is a plan")
	}
	w.restart()
	w.joins(12, "n3")
	if len(w.refusals("n1")) != 1 || w.nodes() != "n2 n3" {
		t.Errorf("nodes %q, refused %+v", w.nodes(), w.refusals("n1"))
	}
}

func TestWhereOneOfATieIsGoneTheOthersDecide(t *testing.T) {
	w := newEmptyWorld(t, 2, 0)
	w.joins(24, "n1")
	w.joins(12, "n2")
	w.joins(24, "n3")
	if len(w.refusals("n2")) != 1 || w.nodes() != "n1 n3" {
		t.Errorf("nodes %q, refused %+v", w.nodes(), w.refusals("n2"))
	}
	w = newEmptyWorld(t, 3, 0)
	w.joins(24, "n1", "n2")
	w.joins(12, "n3", "n4")
	w.lose("n4")
	w.run()
	w.tick(time.Minute)
	if len(w.refusals("n3")) != 1 || len(w.plans()) != 0 {
		t.Errorf("nodes %q, refused %+v", w.nodes(), w.refusals("n3"))
	}
}
