package machine

import (
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

// Found by chaos seed 5: the opening of generation 10 came before plan 9 on the other stream, took the place of the
// negotiation that plan 9 ends, and with it the promise to stop; the node trained on alone under plan 8.
func TestAnOpeningThatOvertakesItsPlanReleasesNobody(t *testing.T) {
	n := trainingNode(t, 95)
	n.hears(events.NegotiationOpened, opening("g4", 4, false, "n1", "n2"))
	prepare(n, "g4", 4)
	n.stands(97)
	n.told = nil
	n.hears(events.NegotiationOpened, opening("g5", 5, true, "n1", "n2"))
	n.hears(events.Aborted, &events.Abort{Negotiation: "g5", Generation: 5, Reason: "test", Superseded: true})
	n.hears(events.NegotiationOpened, opening("g5-again", 5, true, "n1", "n2"))
	n.expect("reread 4")
	n.commits(plan(4, 97, "n1", "n2"))
	n.expect("adopt [{0 2}] at 97", "tell holdings", "say negotiation.consented g5-again true at 97: 0 holdings")
}

// Fault 23: a plan that could not be read was skipped without a word.
func TestAGapInGenerationsIsWaitedFor(t *testing.T) {
	n := trainingNode(t, 12)
	fourth := n.chained(plan(4, 13, "n1", "n2"))
	fifth := n.chained(plan(5, 14, "n1", "n2"))
	n.hears(events.PlanCommitted, fifth)
	n.hears(events.PlanCommitted, fifth)
	n.expect("reread 4")
	n.hears(events.PlanCommitted, fourth)
	n.expect("reread 5")
	n.hears(events.PlanCommitted, fifth)
	n.stands(13)
	n.expect("adopt [{0 2}] at 13", "train under 4, new")
	n.stands(14)
	n.expect("adopt [{0 2}] at 14", "train under 5, new")
}

func TestAPlanWithAnotherParentEndsTheSession(t *testing.T) {
	n := trainingNode(t, 12)
	forged := plan(4, 13, "n1", "n2")
	forged.Parent = events.Digest([]byte("another log"))
	n.hears(events.PlanCommitted, &forged)
	n.expect("end left=false plan 4: expected parent " + n.plans[3] + ", got " + forged.Parent + ": the log went backwards")
}

func TestAPlanThatIsHeardTwiceIsTakenUpOnce(t *testing.T) {
	n := trainingNode(t, 12)
	fourth := n.chained(plan(4, 13, "n1", "n2"))
	n.hears(events.PlanCommitted, fourth)
	n.hears(events.PlanCommitted, fourth)
	n.stands(13)
	n.expect("adopt [{0 2}] at 13", "train under 4, new")
	n.hears(events.PlanCommitted, fourth)
	n.stands(14)
	n.expect("train under 4")
}

func TestANodeThatIsTooFarBehindAsksForAPlaceAgain(t *testing.T) {
	n := trainingNode(t, 12)
	for range mostOvertaking {
		n.hears(events.NegotiationOpened, opening("g5", 5, true, "n1", "n2"))
	}
	n.expect("reread 4")
	n.hears(events.NegotiationOpened, opening("g5", 5, true, "n1", "n2"))
	n.stands(12)
	n.expect("abandon", "rejoin", "say membership.join-requested i2")
	if kept := n.machine.Snapshot().Kept; kept != 0 {
		t.Errorf("%d events are kept", kept)
	}
}

// A refusal ends what the kept events are about, so that a plan that never comes holds nobody.
func TestARefusalOvertakesEventsThatWaitForAPlan(t *testing.T) {
	n := trainingNode(t, 12)
	n.hears(events.NegotiationOpened, opening("g5", 5, true, "n1", "n2"))
	n.hears(events.MembershipRefused, refusal("i1", events.RefusedMembership, false))
	n.stands(12)
	n.expect("reread 4", "abandon", "rejoin", "say membership.join-requested i2")
}

// An event that waited for its plan and is not understood kept those behind it waiting.
func TestAnEventThatWaitedAndIsNotUnderstoodHoldsUpNoOther(t *testing.T) {
	n := trainingNode(t, 12)
	n.hears(events.NegotiationOpened, opening("g5", 5, false, "n1", "n2"))
	broken := n.event(events.Prepared, &events.Preparation{Negotiation: "g5"})
	broken.Data = []byte(`{`)
	if _, err := n.machine.Handle(broken); err != nil {
		t.Fatal(err)
	}
	n.hears(events.NegotiationOpened, opening("g5-again", 5, false, "n1", "n2"))
	n.told = nil
	actions, err := n.machine.Handle(n.event(events.PlanCommitted, n.chained(plan(4, 13, "n1", "n2"))))
	if err == nil {
		t.Error("nobody hears that an event was not understood")
	}
	n.do(actions)
	n.expect("say negotiation.consented g5 true at 12: 1 holdings",
		"say negotiation.consented g5-again true at 12: 1 holdings")
}

func TestAnEventThatIsNotWhatItsKindDemandsIsRefused(t *testing.T) {
	n := trainingNode(t, 12)
	broken := n.event(events.NegotiationOpened, opening("g4", 4, true, "n1", "n2"))
	broken.Data = []byte(`{"negotiation":"g4"}`)
	if actions, err := n.machine.Handle(broken); err == nil || len(actions) > 0 {
		t.Errorf("%v, %v", actions, err)
	}
}

// A hub's clock was set back between two plans.
func TestAPlanIsTakenForLaterThanTheOneBeforeWhateverTheLogsClockSays(t *testing.T) {
	n := newNode(t)
	for generation, logged := range []time.Time{now, now.Add(-time.Hour), now.Add(-time.Minute)} {
		event := n.event(events.PlanCommitted, n.chained(plan(uint64(generation+3), 12, "n1", "n2")))
		event.Logged = logged
		if _, err := n.machine.Handle(event); err != nil {
			t.Fatal(err)
		}
	}
	taken := n.machine.pending
	if len(taken) != 3 || !taken[1].logged.After(taken[0].logged) || !taken[2].logged.After(taken[1].logged) {
		t.Errorf("taken are %+v", taken)
	}
}
