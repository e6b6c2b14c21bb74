package machine

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

// wiped is a cluster whose log has lost all, at step 40 of generation 2; its nodes know it still, and have not joined yet.
func wiped(t *testing.T) (w *world, lost events.Event) {
	before := newWorld(t, 3)
	before.join("n4")
	before.run()
	before.tick(time.Second)
	i := slices.IndexFunc(before.said, func(event events.Event) bool {
		return event.Kind == events.PlanCommitted && event.Subject == "2"
	})
	lost = before.said[i]
	plan := must[events.Plan](t, lost)
	w = newEmptyWorld(t, 3, 0)
	w.sequence = 1000 // their next processes are others
	w.machine.Began(w.now)
	w.trained, w.remembers = map[string]*events.Trained{}, map[string]*events.Plan{}
	for _, member := range plan.Nodes {
		w.trained[member.Node] = &events.Trained{Generation: 2, Plan: lost.Digest(), Step: 40}
		w.remembers[member.Node] = &plan
	}
	return w, lost
}

// goesOn fails where the next plan is not one that goes on from the one that was lost.
func (w *world) goesOn(lost events.Event, nodes string) {
	w.t.Helper()
	plans := w.plans()
	if len(plans) == 0 {
		w.t.Fatalf("there is no plan; held %+v", w.held())
	}
	if plan := plans[0]; plan.Generation != 3 || plan.Parent != lost.Digest() || plan.ResumeStep != 40 || plan.Data.ConsumedSamples != 40*12 {
		w.t.Errorf("generation %d behind %s goes on at step %d and sample %d", plan.Generation, plan.Parent, plan.ResumeStep,
			plan.Data.ConsumedSamples)
	}
	if w.nodes() != nodes {
		w.t.Errorf("nodes %q, expected %q", w.nodes(), nodes)
	}
}

// comesBack has one node join, a second later another one, and then nobody more for ten seconds.
func (w *world) comesBack(first, second string) {
	w.join(first)
	w.run()
	w.tick(time.Second)
	w.join(second)
	w.run()
	w.tick(10 * time.Second)
}

func TestALogThatHasLostAllLearnsItsPlanFromLivingNodesAndGoesOn(t *testing.T) {
	w, lost := wiped(t)
	w.comesBack("n1", "n3")
	w.goesOn(lost, "n1 n3")
}

func TestWhereFewTellOfALostPlanTheOthersHaveTimeToComeAndThenItIsTaken(t *testing.T) {
	w, lost := wiped(t)
	w.join("n2")
	w.run()
	w.tick(10 * time.Second)
	held := w.held()
	if held == nil || !strings.Contains(held.Reason, "of 4 nodes that trained under it 1 tell it: the others have 30 s to come") ||
		!slices.Equal(held.Awaits, []string{"n1", "n3", "n4"}) || len(w.plans()) > 0 {
		t.Fatalf("%d plans, held %+v", len(w.plans()), held)
	}
	w.restart()
	w.tick(40 * time.Second)
	w.goesOn(lost, "n2")
}

// cutOff has nodes know of the plan before only, which they trained to step 20.
func (w *world) cutOff(nodes ...string) {
	for _, node := range nodes {
		before := *w.remembers[node]
		before.Generation = 1
		data, err := json.Marshal(&before)
		if err != nil {
			w.t.Fatal(err)
		}
		w.remembers[node], w.trained[node] = &before, &events.Trained{Generation: 1, Plan: events.Digest(data), Step: 20}
	}
}

func TestWhoComesWhileFewTellOfALostPlanEndsTheWaitOrBringsALaterOne(t *testing.T) {
	w, lost := wiped(t)
	w.cutOff("n4")
	w.join("n4")
	w.run()
	w.tick(10 * time.Second)
	if held := w.held(); held == nil || len(w.plans()) > 0 {
		t.Fatal("the plan before is taken")
	}
	for _, node := range []string{"n1", "n2", "n3"} {
		w.join(node)
	}
	w.run()
	w.tick(10 * time.Second)
	w.goesOn(lost, "n1 n2 n3 n4")
}

// TestThoseWhoTrainedHaveTheirTimeInAYoungLog has the second come 2.5 s after the first, and later than a young log is old.
func TestThoseWhoTrainedHaveTheirTimeInAYoungLog(t *testing.T) {
	w, lost := wiped(t)
	w.join("n9")
	w.run()
	w.tick(time.Second)
	w.join("n1")
	w.run()
	w.tick(2500 * time.Millisecond)
	if opened := slices.ContainsFunc(w.said, func(e events.Event) bool { return e.Kind == events.NegotiationOpened }); opened {
		t.Error("a negotiation was opened before the others had their 3 s")
	}
	w.join("n3")
	w.run()
	w.tick(10 * time.Second)
	w.goesOn(lost, "n1 n3 n9")
}

func TestANewNodeDoesNotBeginAnewBesideLivingNodesThatAreNotBackYet(t *testing.T) {
	w, lost := wiped(t)
	w.machine.settings.StartNodes = 1
	w.comesBack("n9", "n1")
	w.tick(35 * time.Second)
	w.goesOn(lost, "n1 n9")
}

func TestALogThatIsNewIsBegunOnceNobodyComesBack(t *testing.T) {
	w, _ := wiped(t)
	w.machine.settings.StartNodes = 1
	w.join("n9")
	w.run()
	w.tick(time.Second)
	if len(w.plans()) > 0 {
		t.Fatal("nobody had the time to come back")
	}
	w.tick(2 * time.Second)
	if plans := w.plans(); len(plans) != 1 || plans[0].Generation != 1 {
		t.Errorf("%d plans, held %+v", len(plans), w.held())
	}
}

func TestANodeThatTellsOfALaterPlanThanMostIsNotFollowed(t *testing.T) {
	w, lost := wiped(t)
	w.trained["n2"] = &events.Trained{Generation: 99, Plan: events.Digest([]byte("a lie")), Step: 7000}
	for _, node := range []string{"n2", "n1", "n3"} {
		w.join(node)
	}
	w.run()
	w.tick(10 * time.Second)
	w.goesOn(lost, "n1 n2 n3")
}

// TestAPlanThatSeveralTellOfCountsThoughMostWereCutOffBefore has the last of those who trained on tell of a plan still later.
func TestAPlanThatSeveralTellOfCountsThoughMostWereCutOffBefore(t *testing.T) {
	for name, others := range map[string][]string{"two tell it": {"n3"}, "one tells it, and one of a later one": {"n9"}} {
		w, _ := wiped(t)
		w.cutOff("n1", "n2")
		w.trained["m1"], w.remembers["m1"] = w.trained["n1"], w.remembers["n1"]
		w.trained["n9"] = &events.Trained{Generation: 3, Plan: events.Digest([]byte("plan 3")), Step: 40}
		w.joinAll(append(others, "n1", "n2", "m1", "n4")...)
		w.tick(time.Minute)
		isRecalled := func(e events.Event) bool {
			return e.Kind == events.Aborted && strings.Contains(string(e.Data), "the log had lost plan 2")
		}
		if !slices.ContainsFunc(w.said, isRecalled) {
			t.Errorf("%s: held %+v, plans %+v", name, w.held(), w.plans())
		}
	}
}

func TestWhoIsAskedForThePlanAndTellsAnotherOneIsNotBelieved(t *testing.T) {
	w, lost := wiped(t)
	other := *w.remembers["n1"]
	other.ResumeStep = 7000
	w.remembers["n1"], w.remembers["n2"] = &other, nil
	for _, node := range []string{"n1", "n2", "n3", "n4"} {
		w.join(node)
	}
	w.run()
	w.tick(10 * time.Second)
	w.goesOn(lost, "n1 n2 n3 n4")
}

func TestNodesThatTellNoPlanAreRefusedAndNobodyBeginsAnewWithThem(t *testing.T) {
	w, lost := wiped(t)
	right := w.remembers
	w.remembers = nil
	for _, node := range []string{"n1", "n2", "n3"} {
		w.join(node)
	}
	w.run()
	w.tick(5 * time.Second)
	if refused := slices.ContainsFunc(w.said, isRefusal); !refused || len(w.plans()) > 0 {
		t.Fatalf("somebody was refused: %v; %d plans", refused, len(w.plans()))
	}
	w.remembers = right
	for _, node := range []string{"n1", "n2", "n3", "n4"} {
		w.join(node)
	}
	w.run()
	w.tick(time.Minute)
	w.goesOn(lost, "n1 n2 n3 n4")
}

func TestARecallSurvivesTheNegotiator(t *testing.T) {
	w, lost := wiped(t)
	w.join("n1")
	w.run()
	w.restart()
	w.join("n2")
	w.run()
	w.tick(2 * time.Second)
	w.restart()
	w.tick(10 * time.Second)
	w.goesOn(lost, "n1 n2")
}
