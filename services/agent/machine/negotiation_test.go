package machine

import (
	"testing"

	"github.com/reknit/reknit/events"
)

func TestInTheFirstNegotiationEverybodySaysWhatItCanMake(t *testing.T) {
	n := newNode(t)
	n.holds = []events.Holding{{Units: events.Range{End: 2}, Steps: []uint64{0}}}
	n.stands(0)
	n.hears(events.NegotiationOpened, opening("g1", 1, true, "n1"))
	n.expect("tell holdings", "say negotiation.consented g1 true at 0: 1 holdings")
}

func TestANewcomerThatNeverTrainedHoldsNothing(t *testing.T) {
	n := newNode(t)
	n.holds = []events.Holding{{Units: events.Range{End: 2}, Steps: []uint64{0}}}
	n.stands(0)
	n.hears(events.NegotiationOpened, opening("g4", 4, true, "n1"))
	n.expect("say negotiation.consented g4 true at 0: 0 holdings")
}

func TestWhereTrainingBeginsAnewANewcomerSaysWhatItCanMake(t *testing.T) {
	n := newNode(t)
	n.holds = []events.Holding{{Units: events.Range{End: 2}, Steps: []uint64{0}}}
	n.stands(0)
	begins := opening("g4", 4, true, "n1")
	begins.Begins = true
	n.hears(events.NegotiationOpened, begins)
	n.expect("tell holdings", "say negotiation.consented g4 true at 0: 1 holdings")
}

func TestANodeThatAbandonsItsStepSaysAtTheBoundaryWhatItHolds(t *testing.T) {
	n := trainingNode(t, 15)
	n.holds = []events.Holding{{Units: events.Range{End: 2}, Steps: []uint64{15, 14}}}
	n.hears(events.NegotiationOpened, opening("g4", 4, true, "n1", "n2"))
	n.expect("abandon")
	n.stands(15)
	n.expect("tell holdings", "say negotiation.consented g4 true at 15: 1 holdings")
	n.hears(events.Aborted, &events.Abort{Negotiation: "g4", Generation: 4, Reason: "held"})
	n.expect() // a step that was abandoned stays so
	n.hears(events.NegotiationOpened, opening("g4-again", 4, true, "n1", "n2"))
	n.expect("tell holdings", "say negotiation.consented g4-again true at 15: 1 holdings")
	n.commits(plan(4, 14, "n1", "n2"))
	n.expect("adopt [{0 2}] at 14", "train under 4, new, after steps were given up")
}

func TestLinksAreMeasuredBeforeANodeConsents(t *testing.T) {
	connecting := opening("g4", 4, false, "n1", "n2", "n3")
	connecting.Changes = []events.Change{{Kind: events.ChangeConnect, Node: "n1", Peer: "n2", Cause: "x"}}
	connecting.Connect = []events.Pair{events.PairOf("n1", "n2"), events.PairOf("n2", "n3"), events.PairOf("n1", "n3")}
	for name, test := range map[string]struct {
		unreached map[string]string
		expects   string
	}{
		"all open": {nil, "say negotiation.consented g4 true at 15: 1 holdings, 2 links"},
		"one nobody asked for fails": {map[string]string{"n3": "refused"},
			"say negotiation.consented g4 true at 15: 1 holdings, 1 links"},
		"the one asked for fails": {map[string]string{"n2": "refused"},
			"say negotiation.consented g4 false at 15: 1 holdings, 1 links: link to n2: refused"},
	} {
		t.Run(name, func(t *testing.T) {
			n := trainingNode(t, 15)
			n.hears(events.NegotiationOpened, connecting)
			n.expect("measure n2 n3")
			result := Measured{Task: n.tasks[0].(Measure).Task, Unreached: test.unreached}
			for _, peer := range []string{"n3", "n2"} {
				if _, unreached := test.unreached[peer]; !unreached {
					result.Measurements = append(result.Measurements,
						events.Measurement{From: "n1", To: peer, RoundTripSeconds: 0.001, BandwidthBytesPerSecond: 1e9})
				}
			}
			n.ends(result)
			n.expect(test.expects)
			n.ends(result)
			n.expect()
		})
	}
}

// Fault 16: an opening of an old generation cancelled the step and held the trainer for ever.
func TestALateOpeningHasNoEffect(t *testing.T) {
	n := trainingNode(t, 15)
	n.hears(events.NegotiationOpened, opening("g2", 2, true, "n1", "n2"))
	n.hears(events.NegotiationOpened, opening("g3", 3, true, "n1", "n2"))
	n.expect()
	n.hears(events.NegotiationOpened, opening("g4", 4, false, "n1", "n2"))
	n.hears(events.Aborted, &events.Abort{Negotiation: "g4", Generation: 4, Reason: "test"})
	n.told = nil
	n.hears(events.NegotiationOpened, opening("g4", 4, true, "n1", "n2"))
	n.expect()
	n.stands(16)
	n.expect("train under 3")
}

func TestAnOpeningThatIsHeardTwiceIsAnsweredOnce(t *testing.T) {
	n := trainingNode(t, 15)
	n.hears(events.NegotiationOpened, opening("g4", 4, false, "n1", "n2"))
	prepare(n, "g4", 4)
	n.told = nil
	n.hears(events.NegotiationOpened, opening("g4", 4, false, "n1", "n2"))
	prepare(n, "g4", 4)
	n.expect()
	n.stands(17)
	n.expect() // the promise binds
}

func TestAnAbortFreesThePromiseUnlessAnotherNegotiationFollows(t *testing.T) {
	for _, superseded := range []bool{false, true} {
		n := trainingNode(t, 15)
		n.hears(events.NegotiationOpened, opening("g4", 4, false, "n1", "n2"))
		prepare(n, "g4", 4)
		n.stands(17)
		n.told = nil
		n.hears(events.Aborted, &events.Abort{Negotiation: "g4", Generation: 4, Reason: "test", Superseded: superseded})
		if superseded {
			n.expect()
			n.hears(events.NegotiationOpened, opening("g4-again", 4, false, "n1", "n2"))
			n.expect("say negotiation.consented g4-again true at 17: 1 holdings", "train under 3")
		} else {
			n.expect("train under 3")
		}
	}
}

func TestWhatAnIncarnationWasAskedItsSuccessorDoesNotAnswer(t *testing.T) {
	n := trainingNode(t, 15)
	n.slow = true
	n.hears(events.NegotiationOpened, opening("g4", 4, true, "n1", "n2"))
	n.stands(15)
	n.hears(events.MembershipRefused, refusal("i1", events.RefusedMembership, false))
	n.expect("abandon", "tell holdings")
	n.answer()
	n.expect("rejoin", "say membership.join-requested i2")
	prepare(n, "g4", 4)
	n.expect()
}
