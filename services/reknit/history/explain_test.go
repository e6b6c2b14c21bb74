package history

import (
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
)

func TestAPlanThatWasMadeBeforeSpeedsWereKnownPredictsNothing(t *testing.T) {
	log, plan := newTeller(), chain(2, all...)
	plan.Predicted.Unmeasured = true
	log.open("g2", 2, all, events.Change{Kind: events.ChangeJoin, Node: "n4"})
	log.consent("g2", all...)
	log.agree("g2", plan)
	log.commit("g2", plan)
	told := printed(t, ExplainCommand(), log.serve(t))
	if !strings.Contains(told, "predicted: not known before the first steps are measured\n") || strings.Contains(told, "1.1 s") {
		t.Errorf("told is\n%s", told)
	}
}

func TestAnExplanationSaysForWhomAChangeWaitsAndWhyOtherPlansLost(t *testing.T) {
	log := newTeller()
	log.failure(2)
	log.open("g3", 3, all, events.Change{Kind: events.ChangeJoin, Node: "n4"})
	log.consent("g3", "n1", "n2")
	log.say(events.ConsentDelayed, "/node/n3", "n3",
		&events.Delay{Negotiation: "g3", Node: "n3", Incarnation: "i", Reason: "it writes a checkpoint"})
	log.say(events.MembershipRefused, "/negotiator", "n9", &events.Refusal{Node: "n9", Refused: "join", Reason: "another job"})
	url := log.serve(t)
	now := printed(t, ExplainCommand(), url)
	for _, says := range []string{"Generation 3 is not there yet: join of n4", "waiting for n3, n4\n",
		"n3 asked for time: it writes a checkpoint", ": join of n9: another job", "Generation 2, by repipeline: failure of n4", "lower bound 1 s, gap 10.0%", "a slower step"} {
		if !strings.Contains(now, says) {
			t.Errorf("expected %q in\n%s", says, now)
		}
	}
	var why Explanation
	if err := json.Unmarshal([]byte(printed(t, ExplainCommand(), url, "2", "--json")), &why); err != nil || why.Plan == nil ||
		why.Plan.Generation != 2 || why.Change == nil || len(why.Pending) != 0 {
		t.Errorf("of generation 2: %v, %+v", err, why)
	}
	if err := run(t, ExplainCommand(), io.Discard, url, "9"); err == nil {
		t.Error("generation 9, which is not there, is explained")
	}
}

func TestAClusterThatHoldsSaysWhatItNeeds(t *testing.T) {
	log := newTeller()
	log.failure(1)
	log.say(events.ClusterHeld, "/negotiator", "c", &events.Hold{Reason: "no node has layer 2", Awaits: []string{"n4"}})
	now := printed(t, ExplainCommand(), log.serve(t))
	for _, says := range []string{"not there yet: the cluster holds\n\nThe cluster holds: no node has layer 2",
		"only these have: n4", "Generation 1, by repipeline"} {
		if !strings.Contains(now, says) {
			t.Errorf("expected %q in\n%s", says, now)
		}
	}
}

// The text of a held step, which is long, came three times.
func TestWhyTheClusterHoldsIsToldOnce(t *testing.T) {
	log := newTeller()
	log.failure(1)
	log.open("g2", 2, all, events.Change{Kind: events.ChangeFailure, Node: "n4"})
	log.say(events.Aborted, "/negotiator", "g2", &events.Abort{Negotiation: "g2", Generation: 2, Reason: "step 30 is held"})
	log.say(events.ClusterHeld, "/negotiator", "c", &events.Hold{Reason: "step 30 is held"})
	url := log.serve(t)
	for _, now := range []string{printed(t, ExplainCommand(), url), printed(t, Command(), url, "2")} {
		if strings.Count(now, "step 30 is held") != 1 || !strings.Contains(now, ": the cluster holds\n") {
			t.Errorf("it says\n%s", now)
		}
	}
}

func TestThatOthersWaitedForANodeIsToldForAsLongAsThePlanLasts(t *testing.T) {
	log := newTeller()
	log.failure(1)
	log.say(events.StepDelayed, "/monitor", "n2", &events.StepDelay{Node: "n2", Incarnation: "i", Generation: 1, Step: 40, By: "n1",
		Phase: events.PhaseBetween, WaitedSeconds: 9, UsualSeconds: 1, Reason: "n1 has waited for it"})
	under := printed(t, ExplainCommand(), log.serve(t))
	log.failure(2)
	after := printed(t, ExplainCommand(), log.serve(t))
	if says := "Others waited for n2 in a step"; !strings.Contains(under, says) || strings.Contains(after, says) {
		t.Errorf("under the plan:\n%s\nunder the next:\n%s", under, after)
	}
}
