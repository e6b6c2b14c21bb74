package machine

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

// allAreLost is a cluster in which n1 and n2 trained step 40 under plan 1. Then n3 joined, and under plan 2 all were
// lost.
func allAreLost(t *testing.T) *world {
	w := newWorld(t, 2)
	w.step = 40
	w.join("n3")
	w.run()
	w.step = 60
	w.mute[events.NegotiationOpened] = true
	for _, node := range []string{"n1", "n2", "n3"} {
		w.lose(node)
	}
	w.run()
	return w
}

// comeBack has nodes join again, and say in the negotiation that follows what they hold.
func (w *world) comeBack(consents map[string]events.Consent) {
	for _, node := range []string{"n1", "n2", "n3"} {
		if _, comes := consents[node]; comes {
			w.join(node)
		}
	}
	w.run()
	w.say(consents)
}

// say has the members of the negotiation under way consent, and of those that follow at once. Who has nothing to say is a
// new process.
func (w *world) say(consents map[string]events.Consent) {
	for last := ""; w.opened != nil && w.opened.Negotiation != last; {
		last = w.opened.Negotiation
		for _, member := range w.opened.Members {
			consent := consents[member.Node]
			consent.Negotiation, consent.Accepted = last, true
			consent.Node, consent.Incarnation = member.Node, member.Incarnation
			w.hear(events.Consented, "/node/"+member.Node, member.Node, &consent)
		}
		w.run()
	}
}

// commitment returns what the negotiator said of the last commit.
func (w *world) commitment() events.Commitment {
	var last events.Commitment
	for _, event := range w.said {
		if event.Kind == events.Committed {
			last = must[events.Commitment](w.t, event)
		}
	}
	return last
}

var older = events.Consent{Trained: 1, Claims: claimed(39, "good", 0, 1, 2)}

func TestWhereNobodyCanBringANewerStepTrainingGoesBackAndSaysHowFar(t *testing.T) {
	w := allAreLost(t)
	w.comeBack(map[string]events.Consent{"n1": older, "n2": {}, "n3": {}})
	plans := w.plans()
	if len(plans) != 3 || plans[2].ResumeStep != 39 || plans[2].Data.ConsumedSamples != 39*12 {
		t.Fatalf("%d plans, held %+v", len(plans), w.held())
	}
	if lost := w.commitment().LostSteps; lost != 3 || w.commitment().AtMost { // as heartbeats told
		t.Errorf("plan 2 went on from step 42, and step 39 is all there is: %d steps are said to be lost", lost)
	}
}

func TestWhoMayBringANewerStepIsWaitedForBeforeTrainingGoesBack(t *testing.T) {
	w := allAreLost(t)
	w.comeBack(map[string]events.Consent{"n1": older, "n2": {}})
	held := w.held()
	if held == nil || !slices.Equal(held.Awaits, []string{"n3"}) ||
		!strings.Contains(held.Reason, "waiting for n3; in 30 s training goes back by about 3 steps, to step 39") {
		t.Fatalf("held %+v after %d plans", held, len(w.plans()))
	}
	w.tick(29 * time.Second)
	if w.opened != nil {
		t.Fatal("gone on before n3 was waited for")
	}
	w.tick(2 * time.Second)
	w.say(map[string]events.Consent{"n1": older})
	if plans := w.plans(); len(plans) != 3 || plans[2].ResumeStep != 39 {
		t.Fatalf("%d plans, held %+v", len(plans), w.held())
	}
}

func TestWhoComesBackWithTheNewestStepInTimeIsFollowed(t *testing.T) {
	w := allAreLost(t)
	w.comeBack(map[string]events.Consent{"n1": older, "n2": {}})
	w.comeBack(map[string]events.Consent{"n1": older, "n3": {Trained: 2, Claims: claimed(60, "good", 0, 1, 2)}})
	if plans := w.plans(); len(plans) != 3 || plans[2].ResumeStep != 60 || w.commitment().LostSteps != 0 {
		t.Fatalf("%d plans, held %+v, %d steps lost", len(plans), w.held(), w.commitment().LostSteps)
	}
}

func TestWhoComesBackWhileUnitsOfTheOlderStepMoveEndsThat(t *testing.T) {
	w := allAreLost(t)
	w.transfer, w.mute[events.Scheduled] = true, true
	w.comeBack(map[string]events.Consent{"n1": older, "n2": {}})
	w.tick(31 * time.Second)
	w.say(map[string]events.Consent{"n1": older})
	if w.opened == nil {
		t.Fatalf("held %+v, expected a transfer", w.held())
	}
	w.transfer = false
	w.join("n3")
	w.run()
	w.say(map[string]events.Consent{"n1": older, "n3": {Trained: 2, Claims: claimed(60, "good", 0, 1, 2)}})
	if plans := w.plans(); len(plans) != 3 || plans[2].ResumeStep != 60 {
		t.Fatalf("%d plans, the last from step %d", len(plans), plans[len(plans)-1].ResumeStep)
	}
}

// Who was cut off at the commit has the step from which the others went on, and they may have gone far.
func TestWhoTrainedOnIsWaitedForBeforeTrainingGoesBackToWhereItWentOnFrom(t *testing.T) {
	w := newWorld(t, 2)
	w.step = 40
	w.join("n3")
	w.run()
	w.now = w.now.Add(90 * time.Second)
	w.mute[events.NegotiationOpened] = true
	for _, node := range []string{"n1", "n2", "n3"} {
		w.lose(node)
	}
	w.run()
	missed := map[string]events.Consent{"n1": {Trained: 1, Claims: claimed(42, "good", 0, 1, 2)}}
	w.comeBack(missed)
	held := w.held()
	if held == nil || !slices.Equal(held.Awaits, []string{"n2", "n3"}) ||
		!strings.Contains(held.Reason, "in 90 s training goes back by at most 90 steps, to step 42") {
		t.Fatalf("a step takes a second, plan 2 was trained for 90: held %+v after %d plans", held, len(w.plans()))
	}
	w.tick(91 * time.Second)
	w.say(missed)
	if plans := w.plans(); len(plans) != 3 || plans[2].ResumeStep != 42 || w.commitment().LostSteps != 90 || !w.commitment().AtMost {
		t.Fatalf("%d plans, %d steps lost, held %+v", len(plans), w.commitment().LostSteps, w.held())
	}
}

// spareIsLeft is a cluster in which n1 has layers 0 and 1 and n3 layer 2. The plan, from step 42, gave n2 nothing to train.
// At step 60 n1 is lost.
func spareIsLeft(t *testing.T) *world {
	w := newWorld(t, 2)
	w.step, w.split = 40, true
	w.join("n3")
	w.run()
	w.step = 60
	w.mute[events.NegotiationOpened] = true
	w.lose("n1")
	w.run()
	return w
}

// holding is the consent of a member that is at the first of these steps, and holds units at all of them.
func holding(units events.Range, steps ...uint64) events.Consent {
	return events.Consent{Step: steps[0], Holdings: []events.Holding{{Units: units, Steps: steps}}}
}

var (
	spares = holding(events.Range{First: 0, End: 3}, 42)
	others = holding(events.Range{First: 2, End: 3}, 60, 59)
)

func TestWhatAMemberWithoutAPlaceKeptIsGoneBackToOnceWhoTrainedOnWasWaitedFor(t *testing.T) {
	w := spareIsLeft(t)
	w.say(map[string]events.Consent{"n2": spares, "n3": others})
	held := w.held()
	if held == nil || !slices.Equal(held.Awaits, []string{"n1"}) ||
		!strings.Contains(held.Reason, "in 30 s training goes back by about 18 steps, to step 42") {
		t.Fatalf("held %+v after %d plans", held, len(w.plans()))
	}
	w.tick(31 * time.Second)
	w.say(map[string]events.Consent{"n2": spares, "n3": others})
	if plans := w.plans(); len(plans) != 3 || plans[2].ResumeStep != 42 || w.commitment().LostSteps != 18 || w.commitment().AtMost {
		t.Fatalf("%d plans, %d steps lost, held %+v", len(plans), w.commitment().LostSteps, w.held())
	}
}

// Of a plan that went back nobody can tell whether what a member kept is of the history that goes on.
func TestWhatAMemberKeptOfAHistoryThatWasLeftIsNotGoneBackTo(t *testing.T) {
	w := spareIsLeft(t)
	w.join("n4")
	w.run()
	w.say(map[string]events.Consent{"n2": spares, "n3": others})
	w.tick(31 * time.Second)
	w.say(map[string]events.Consent{"n2": spares, "n3": others}) // plan 3, from step 42: n2 and n4 train, n3 does not
	w.lose("n4")
	w.run()
	w.say(map[string]events.Consent{"n2": holding(events.Range{First: 0, End: 2}, 70, 69), "n3": spares})
	if held := w.held(); len(w.plans()) != 3 || held == nil || !strings.Contains(held.Reason, "there is no snapshot to go back to") {
		t.Fatalf("held %+v after %d plans", held, len(w.plans()))
	}
}

// The waits of a cluster that held because there was no plan are not those for a node that was lost since.
func TestANodeThatIsLostLaterIsWaitedForAnew(t *testing.T) {
	w := newWorld(t, 2)
	w.step = 40
	w.join("n3")
	w.run()
	w.step = 60
	w.mute[events.NegotiationOpened], w.mute[events.PlanRequested] = true, true
	w.lose("n1")
	w.run()
	for range 3 {
		w.hear(events.PlanRefused, "/planner", "p",
			&events.Failure{Negotiation: w.opened.Negotiation, Reason: "too little memory"})
		w.run()
		w.tick(3 * time.Minute)
	}
	w.mute[events.PlanRequested] = false
	w.lose("n2")
	w.lose("n3")
	w.comeBack(map[string]events.Consent{"n1": older, "n2": {}})
	if held := w.held(); held == nil || !slices.Equal(held.Awaits, []string{"n3"}) {
		t.Fatalf("held %+v after %d plans", held, len(w.plans()))
	}
}

// What was rolled back was trained again under the next plan, and need not have come out the same.
func TestUnitsOfOneStepThatTwoPlansTrainedDoNotGoTogether(t *testing.T) {
	w := newWorld(t, 2)
	for step := uint64(40); step <= 42; step++ { // plans 2 to 4
		w.step = step
		w.hear(events.DisconnectRequested, "/user", "n1", &events.LinkRequest{From: "n1", To: "n2"})
		w.hear(events.ConnectRequested, "/user", "n1", &events.LinkRequest{From: "n1", To: "n2"})
		w.run()
	}
	newest := uint64(len(w.plans()))
	w.mute[events.NegotiationOpened] = true
	w.lose("n1")
	w.lose("n2")
	w.run()
	w.comeBack(map[string]events.Consent{
		"n1": {Trained: newest - 2, Claims: claimed(41, "good", 0, 1)},
		"n2": {Trained: newest - 3, Claims: claimed(41, "good", 2)},
	})
	if held := w.held(); held == nil || uint64(len(w.plans())) != newest {
		t.Fatalf("held %+v after %d plans", held, len(w.plans()))
	}
}

// A cluster may be held for weeks, while processes under ever new names start and die.
func TestOfProcessesThatNoPlanNamesNobodyRemembersThatTheyAreGone(t *testing.T) {
	w := allAreLost(t)
	w.join("fresh")
	w.hear(events.NodeLost, "/monitor", "fresh",
		&events.NodeState{Node: "fresh", Incarnation: w.process["fresh"], Proven: true})
	w.run()
	memory, err := w.machine.Snapshot()
	if err != nil || !strings.Contains(string(memory), `"gone":{}`) {
		t.Errorf("remembered %s, %v", memory, err)
	}
}
