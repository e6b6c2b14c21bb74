package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
)

// joinOf returns what the join says that the actions bring about.
func joinOf(t *testing.T, actions []Action) events.Join {
	t.Helper()
	for _, action := range actions {
		if say, says := action.(Say); says && say.Event.Kind == events.JoinRequested {
			join, err := events.Open[events.Join](say.Event)
			if err != nil {
				t.Fatal(err)
			}
			return join
		}
	}
	t.Fatalf("nobody joins: %+v", actions)
	return events.Join{}
}

func TestANodeOfALogThatWasLostAsksAgainAndTellsWhatItTrained(t *testing.T) {
	n := trainingNode(t, 15)
	n.do(n.machine.Forgotten("the log is another one"))
	n.expect("abandon")
	n.do(n.machine.Forgotten("the log is another one again"))
	n.expect()
	n.stands(15)
	n.expect("rejoin", "say membership.join-requested i2")
	join := joinOf(t, n.machine.Join(now, "i3", false))
	if past := join.Trained; past == nil || past.Generation != 3 || past.Step != 15 || past.Plan != n.plans[3] {
		t.Errorf("it says that it trained %+v", past)
	}
}

func TestANodeThatHasTrainedNothingTellsOfNothing(t *testing.T) {
	n := newNode(t)
	n.do(n.machine.Forgotten("the log is another one"))
	if join := joinOf(t, n.machine.Join(now, "i2", false)); join.Trained != nil {
		t.Errorf("it says that it trained %+v", join.Trained)
	}
}

func TestAPlanThatTheLogHasLostIsToldByWhoIsAskedForIt(t *testing.T) {
	for asked, tells := range map[string]bool{"n1": true, "n2": false} {
		n := trainingNode(t, 15)
		n.do(n.machine.Forgotten("the log is another one"))
		n.stands(15)
		n.told = nil
		recall := rejoined("g4", 4)
		recall.Recalls = []string{asked}
		actions, err := n.machine.Handle(n.event(events.NegotiationOpened, recall))
		if err != nil || len(actions) != 1 {
			t.Fatalf("it does %+v: %v", actions, err)
		}
		consent, err := events.Open[events.Consent](actions[0].(Say).Event)
		if err != nil {
			t.Fatal(err)
		}
		if is := consent.Plan != nil && consent.Plan.Generation == 3; is != tells || len(consent.Claims) > 0 || !consent.Accepted {
			t.Errorf("%s is asked, and n1 says %+v", asked, consent)
		}
		n.claims = []events.Claim{{Unit: 0, Step: 15, Digest: events.Digest(nil)}}
		n.hears(events.NegotiationOpened, rejoined("g4-next", 4))
		n.expect("say negotiation.delayed g4-next: it digests what it claims", "tell claims",
			"say negotiation.consented g4-next true at 0: 0 holdings, 1 claims of plan 3")
	}
}

// TestANodeThatAnsweredInAnOlderLogTellsThePlanThatTheLogLacks has a node answer in an older log before most are back: its last plan there
// is 1, and the node trained under 3.
func TestANodeThatAnsweredInAnOlderLogTellsThePlanThatTheLogLacks(t *testing.T) {
	for name, asked := range map[string]string{"it is asked": "n1", "another one is asked": "n2"} {
		t.Run(name, func(t *testing.T) {
			n := trainingNode(t, 15)
			n.do(n.machine.Forgotten("the log is an older one"))
			n.stands(15)
			n.hears(events.NegotiationOpened, rejoined("g2", 2))
			n.hears(events.Aborted, &events.Abort{Negotiation: "g2", Generation: 2, Reason: "the log is an older one"})
			n.told = nil
			n.hears(events.NegotiationOpened, rejoined("g3", 3)) // builds on a plan that nobody hears
			recall := rejoined("g4", 4)
			recall.Recalls = []string{asked}
			n.hears(events.NegotiationOpened, recall)
			n.expect("reread 2", "say negotiation.consented g4 true at 0: 0 holdings")
			n.claims = []events.Claim{{Unit: 0, Step: 15, Digest: events.Digest(nil)}}
			n.hears(events.NegotiationOpened, rejoined("g4-next", 4))
			n.expect("say negotiation.delayed g4-next: it digests what it claims", "tell claims",
				"say negotiation.consented g4-next true at 0: 0 holdings, 1 claims of plan 3")
		})
	}
}

// TestANodeTakesPartAgainWhereAllDiedWhoToldOfALaterPlan has those die who told of plan 5 before they told the plan itself.
func TestANodeTakesPartAgainWhereAllDiedWhoToldOfALaterPlan(t *testing.T) {
	for name, next := range map[string]*events.Opening{
		"this node knows plan 3": rejoined("g4", 4), "nobody knows a plan": rejoined("g1", 1),
	} {
		t.Run(name, func(t *testing.T) {
			n := trainingNode(t, 15)
			n.do(n.machine.Forgotten("the log is another one"))
			n.stands(15)
			n.told = nil
			recall := rejoined("g6", 6)
			recall.Recalls = []string{"n2"}
			n.hears(events.NegotiationOpened, recall)
			n.hears(events.Aborted, &events.Abort{Negotiation: "g6", Generation: 6, Reason: "the changes are others now"})
			if next.Generation > 1 {
				next.Recalls = []string{"n1"}
			}
			n.hears(events.NegotiationOpened, next)
			if !slices.ContainsFunc(n.told, func(told string) bool { return strings.Contains(told, next.Negotiation) }) {
				t.Errorf("it answers no opening of generation %d: %q", next.Generation, n.told)
			}
		})
	}
}

// TestANodeTakesPartWhereTrainingBeginsBehindPlansOfWhichItHeardNothing has those die who told of plans 5 and 8, and never told them.
func TestANodeTakesPartWhereTrainingBeginsBehindPlansOfWhichItHeardNothing(t *testing.T) {
	n := trainingNode(t, 15)
	n.do(n.machine.Forgotten("the log is another one"))
	n.stands(15)
	for _, generation := range []uint64{6, 9} {
		begins := rejoined(fmt.Sprint("g", generation), generation)
		begins.Begins = true
		n.told = nil
		n.hears(events.NegotiationOpened, begins)
		if !slices.ContainsFunc(n.told, func(told string) bool { return strings.Contains(told, begins.Negotiation) }) {
			t.Errorf("it answers no opening of generation %d: %q", generation, n.told)
		}
		n.hears(events.Aborted, &events.Abort{Negotiation: begins.Negotiation, Generation: generation, Reason: "others came"})
	}
}
