package machine

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

func refusal(incarnation, refused string, astray bool) *events.Refusal {
	return &events.Refusal{Node: "n1", Incarnation: incarnation, Refused: refused, Reason: "no answer", Astray: astray}
}

func TestANewcomerWaitsForThePlanThatNamesIt(t *testing.T) {
	n := newNode(t)
	n.stands(0)
	n.commits(plan(6, 9, "n2"))
	n.hears(events.NegotiationOpened, opening("g7", 7, false, "n1", "n2"))
	n.expect("say negotiation.consented g7 true at 0: 0 holdings")
	n.commits(plan(7, 12, "n1", "n2"))
	n.expect("adopt [{0 2}] at 12", "train under 7, new")
}

func TestAMemberThatANewPlanLeavesOutGivesUpItsStepAndAsksAgain(t *testing.T) {
	n := trainingNode(t, 15)
	n.commits(plan(4, 12, "n2"))
	n.expect("abandon")
	n.stands(15)
	n.expect("rejoin", "say membership.join-requested i2")
	n.hears(events.NegotiationOpened, opening("g5", 5, true, "n1", "n2"))
	n.expect()
}

func TestAMemberThatIsToldItWasGivenUpAsksAgainAndANewIncarnationIsNotMeant(t *testing.T) {
	n := trainingNode(t, 15)
	n.hears(events.MembershipRefused, refusal("older", events.RefusedMembership, false))
	n.expect("look")
	n.hears(events.MembershipRefused, refusal("of another job", events.ChangeJoin, false)) // it never took the name
	n.expect()
	n.hears(events.MembershipRefused, refusal("i1", events.RefusedMembership, false))
	n.expect("abandon")
	n.stands(15)
	n.expect("rejoin", "say membership.join-requested i2")
	n.hears(events.MembershipRefused, refusal("i1", events.RefusedMembership, false))
	n.expect()
}

// The second refusal comes while it looks whether another process has its name.
func TestAMemberThatIsToldTwiceThatItWasGivenUpAsksOnce(t *testing.T) {
	n := trainingNode(t, 15)
	n.looks = true
	n.hears(events.MembershipRefused, refusal("i1", events.RefusedMembership, false))
	n.stands(15)
	n.expect("abandon", "rejoin")
	n.hears(events.MembershipRefused, refusal("i1", events.RefusedMembership, false))
	n.expect()
}

// Of two processes of a name, the one that holds what training needs takes it back. The other one leaves it.
func TestANameIsTakenBackByWhoHoldsStateAndLeftByWhoHasNothingOrIsOutdoneByAPlan(t *testing.T) {
	const ends = "end left=false another process asked for a place by this name: expected a name for each node"
	others := opening("g4", 4, true, "n1", "n2")
	others.Members[0].Incarnation = "another"

	n := newNode(t)
	n.hears(events.NegotiationOpened, others)
	n.expect("look")
	n.do(n.machine.Replaced())
	n.expect(ends)

	n = trainingNode(t, 15)
	n.hears(events.NegotiationOpened, others)
	n.expect("look")
	n.do(n.machine.Replaced())
	n.expect("abandon")
	n.taken = true
	n.stands(15)
	n.expect("rejoin", "say membership.join-requested i2")
	n.hears(events.NegotiationOpened, others) // neither is in a plan: they would ask in turn
	n.expect("look")
	n.do(n.machine.Replaced())
	n.expect(ends)

	n = trainingNode(t, 15)
	outdoing := plan(4, 12, "n1", "n2")
	outdoing.Nodes[0].Incarnation = "another"
	n.commits(outdoing)
	n.expect("look", "abandon")
	n.do(n.machine.Replaced())
	n.expect(ends)

	n = trainingNode(t, 15)
	n.hears(events.MembershipRefused, refusal("i1", events.RefusedMembership, true))
	n.told = nil
	n.do(n.machine.Replaced())
	n.expect(ends)
}

func TestAFrozenMemberNoticesThatItWasLeftOutInWhateverOrderItHears(t *testing.T) {
	n := trainingNode(t, 15)
	n.hears(events.NegotiationOpened, opening("g4", 4, false, "n1", "n2"))
	prepare(n, "g4", 4)
	n.told = nil
	n.commits(plan(4, 12, "n2")) // made without it
	n.expect()                   // a promise is outstanding: the plan may have been made with it
	n.hears(events.NegotiationOpened, opening("g5", 5, false, "n2"))
	n.expect("abandon")
	n.stands(15)
	n.expect("rejoin", "say membership.join-requested i2")
}

func TestAJoinThatIsRefusedEndsTheSession(t *testing.T) {
	n := newNode(t)
	n.stands(0)
	n.hears(events.MembershipRefused, refusal("i1", events.ChangeJoin, false))
	n.expect("end left=false no answer")
	n.hears(events.NegotiationOpened, opening("g1", 1, true, "n1"))
	n.expect()
}

func TestALeaverTrainsOnToTheStepItPromisedAndIsGone(t *testing.T) {
	n := trainingNode(t, 15)
	n.do(n.machine.Leave(now, "asked to go", time.Minute))
	n.expect("say membership.leave-requested: asked to go")
	n.hears(events.NegotiationOpened, opening("g4", 4, false, "n1", "n2"))
	prepare(n, "g4", 4)
	n.told = nil
	n.commits(plan(4, 17, "n2"))
	n.stands(16)
	n.expect("train under 3")
	n.stands(17)
	n.expect("end left=true ")
}

// Found by the simulation's seed 330: the next opening, which does not name the leaver any more, freed it from its
// promise; it left two steps before the others, who waited for it for ever.
func TestALeaverIsNotFreedByTheNextOpening(t *testing.T) {
	for _, abandon := range []bool{false, true} {
		n := trainingNode(t, 15)
		n.do(n.machine.Leave(now, "asked to go", time.Minute))
		n.hears(events.NegotiationOpened, opening("g4", 4, false, "n1", "n2"))
		prepare(n, "g4", 4)
		n.commits(plan(4, 17, "n2"))
		n.told = nil
		n.hears(events.NegotiationOpened, opening("g5", 5, abandon, "n2"))
		if abandon {
			n.expect("abandon")
			n.stands(15)
			n.expect("end left=true ")
		} else {
			n.stands(16)
			n.expect("train under 3")
		}
	}
}

// The opening that stops all may come after its plan, which is on the other stream.
func TestALeaverWhoseLastStepIsAbandonedGoesInWhateverOrderItHears(t *testing.T) {
	n := trainingNode(t, 15)
	n.do(n.machine.Leave(now, "asked to go", time.Minute))
	n.hears(events.NegotiationOpened, opening("g4", 4, false, "n1", "n2"))
	prepare(n, "g4", 4)
	n.commits(plan(4, 17, "n2"))
	n.told = nil
	n.commits(plan(5, 16, "n2"))
	n.expect()
	n.hears(events.NegotiationOpened, opening("g5", 5, true, "n2"))
	n.expect("abandon")
	n.stands(15)
	n.expect("end left=true ")
}

// The cluster may wait for what only this node still holds.
func TestANodeThatMayClaimDoesNotGoBeforeItHasAPlaceAgain(t *testing.T) {
	n := trainingNode(t, 15)
	n.claims = []events.Claim{{Unit: 1, Step: 15, Digest: events.Digest(nil)}}
	n.hears(events.MembershipRefused, refusal("i1", events.RefusedMembership, false))
	n.stands(15)
	n.told = nil
	n.do(n.machine.Leave(now, "asked to go", 0))
	n.expect()
	back := plan(5, 15, "n1", "n2")
	back.Nodes[0].Incarnation = "i2"
	n.commits(back)
	n.expect("adopt [{0 2}] at 15", "say membership.leave-requested: asked to go", "train under 5, new, after steps were given up")
}

func TestANodeThatAskedToLeaveMeanwhileIsGoneWhereItsJoinIsRefused(t *testing.T) {
	n := trainingNode(t, 15)
	n.claims = []events.Claim{{Unit: 1, Step: 15, Digest: events.Digest(nil)}}
	n.hears(events.MembershipRefused, refusal("i1", events.RefusedMembership, false))
	n.stands(15)
	n.do(n.machine.Leave(now, "asked to go", 0))
	n.told = nil
	n.hears(events.MembershipRefused, refusal("i2", events.ChangeJoin, false))
	n.expect("end left=true no answer")
}

func TestALeaveThatSomebodyElseAskedForIsALeave(t *testing.T) {
	n := trainingNode(t, 15)
	leave := opening("g4", 4, false, "n1", "n2")
	leave.Changes[0] = events.Change{Kind: events.ChangeLeave, Node: "n1", Cause: "x"}
	n.hears(events.NegotiationOpened, leave)
	prepare(n, "g4", 4)
	n.told = nil
	n.commits(plan(4, 17, "n2"))
	n.stands(17)
	n.expect("end left=true ")
}

func TestANewcomerThatLeavesBeforeItHasAPlaceIsGoneAtOnce(t *testing.T) {
	n := newNode(t)
	n.stands(0)
	n.do(n.machine.Leave(now, "asked to go", 0))
	n.expect("say membership.leave-requested: asked to go", "end left=true ")
}

// Fault 23: a leave that was refused left the node waiting to be let go, and its repeat had the id of the first.
func TestALeaveThatWasRefusedIsTakenBackAndCanBeAskedForAgain(t *testing.T) {
	n := trainingNode(t, 15)
	first := n.machine.Leave(now, "asked to go", 0)[0].(Say).Event
	repeat := n.machine.Leave(now, "asked to go", 0)[0].(Say).Event
	if first.ID != repeat.ID {
		t.Error("the same leave was said under two ids")
	}
	n.hears(events.MembershipRefused, refusal("", events.ChangeLeave, false))
	n.commits(plan(4, 15, "n2"))
	n.stands(15)
	n.expect("stays", "abandon", "rejoin", "say membership.join-requested i2") // it was left out, and did not leave
	n = trainingNode(t, 15)
	n.do(n.machine.Leave(now, "asked to go", 0))
	n.hears(events.MembershipRefused, refusal("", events.ChangeLeave, false))
	if again := n.machine.Leave(now, "asked to go", 0)[0].(Say).Event; again.ID == first.ID {
		t.Error("the stream drops a leave with the id of one that was refused")
	}
}

// A soak found it: the log was wiped while the wish was on its way. It came to the new log before the node did, which refused it.
func TestAWishToLeaveThatCameToALogWithoutTheNodeIsSaidAgainOnceItHasAPlace(t *testing.T) {
	n := trainingNode(t, 15)
	n.claims = []events.Claim{{Unit: 1, Step: 15, Digest: events.Digest(nil)}}
	n.do(n.machine.Leave(now, "asked to go", 0))
	n.hears(events.MembershipRefused, refusal("i1", events.RefusedMembership, false))
	n.stands(15)
	n.told = nil
	n.hears(events.MembershipRefused, refusal("", events.ChangeLeave, false))
	n.expect()
	back := plan(5, 15, "n1", "n2")
	back.Nodes[0].Incarnation = "i2"
	n.commits(back)
	n.expect("adopt [{0 2}] at 15", "say membership.leave-requested: asked to go", "train under 5, new, after steps were given up")
}

func TestALeaverThatIsGivenUpComesBackAndAsksAgainToGo(t *testing.T) {
	n := trainingNode(t, 15)
	n.do(n.machine.Leave(now, "asked to go", 0))
	n.hears(events.MembershipRefused, refusal("i1", events.RefusedMembership, false))
	n.stands(15)
	n.expect("say membership.leave-requested: asked to go", "abandon", "rejoin", "say membership.join-requested i2")
	back := plan(5, 15, "n1", "n2")
	back.Nodes[0].Incarnation = "i2"
	n.commits(back)
	n.expect("adopt [{0 2}] at 15", "say membership.leave-requested: asked to go", "train under 5, new, after steps were given up")
}

// Faults 1 and 2: a node that was given up while it lived claims what it trained, unless it went astray.
func TestANodeThatWasGivenUpClaimsWhatItHolds(t *testing.T) {
	for name, test := range map[string]struct {
		astray  bool
		expects []string
	}{
		"given up": {false, []string{"say negotiation.delayed g5: it digests what it claims", "tell claims",
			"say negotiation.consented g5 true at 0: 0 holdings, 1 claims of plan 3"}},
		"astray": {true, []string{"say negotiation.consented g5 true at 0: 0 holdings"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := trainingNode(t, 15)
			n.claims = []events.Claim{{Unit: 1, Step: 15, Digest: events.Digest(nil)}}
			n.hears(events.MembershipRefused, refusal("i1", events.RefusedMembership, test.astray))
			n.stands(15)
			if forgot := strings.Contains(strings.Join(n.told, " "), "forget"); forgot != test.astray {
				t.Errorf("forgets: %t", forgot)
			}
			n.told = nil
			again := opening("g5", 5, true, "n1", "n2")
			again.Members[0].Incarnation = "i2"
			n.hears(events.NegotiationOpened, again)
			n.expect(test.expects...)
		})
	}
}

func TestAMemberTellsDigestsOfWhatItHoldsOnlyWhereItIsAsked(t *testing.T) {
	for _, asked := range [][]string{nil, {"n2"}, {"n1"}} {
		n := trainingNode(t, 15)
		n.holds = []events.Holding{{Units: events.Range{End: 2}, Steps: []uint64{15, 14}}}
		n.claims = []events.Claim{{Unit: 1, Step: 15, Digest: events.Digest(nil)}}
		again := opening("g4", 4, true, "n1", "n2")
		again.Digests = asked
		n.hears(events.NegotiationOpened, again)
		n.told = nil
		n.stands(15)
		if slices.Contains(asked, "n1") {
			n.expect("tell claims", "say negotiation.consented g4 true at 15: 1 holdings, 1 claims of plan 3")
		} else {
			n.expect("tell holdings", "say negotiation.consented g4 true at 15: 1 holdings")
		}
	}
}

func TestANodeThatWentAstrayMayClaimAgainOnceItHasAdoptedAPlan(t *testing.T) {
	n := trainingNode(t, 15)
	n.claims = []events.Claim{{Unit: 1, Step: 15, Digest: events.Digest(nil)}}
	n.hears(events.MembershipRefused, refusal("i1", events.RefusedMembership, true))
	n.stands(15)
	back := plan(5, 15, "n1", "n2")
	back.Nodes[0].Incarnation = "i2"
	n.commits(back)
	n.hears(events.MembershipRefused, refusal("i2", events.RefusedMembership, false))
	n.stands(16)
	n.told = nil
	again := opening("g6", 6, true, "n1", "n2")
	again.Members[0].Incarnation = "i3"
	n.hears(events.NegotiationOpened, again)
	n.expect("say negotiation.delayed g6: it digests what it claims", "tell claims",
		"say negotiation.consented g6 true at 0: 0 holdings, 1 claims of plan 5")
}

func TestALeaverHearsThatTheOthersNeedLongerAndWhatItAloneHolds(t *testing.T) {
	n := trainingNode(t, 15)
	delay := &events.LeaveDelay{
		Node: "n1", Incarnation: "i1", Seconds: 61, DeadlineSeconds: 10, Alone: []events.Range{{First: 0, End: 1}},
	}
	n.hears(events.LeaveDelayed, delay)
	n.expect() // it has asked for nothing
	n.do(n.machine.Leave(now, "asked to go", 10*time.Second))
	n.told = nil
	n.hears(events.LeaveDelayed, delay)
	n.expect("late by 61 s, alone with [{0 1}]")
	delay.Incarnation = "older"
	n.hears(events.LeaveDelayed, delay)
	n.expect()
}

func TestANodeThatWaitsForItsTurnHearsWhenAndWhy(t *testing.T) {
	n := newNode(t)
	n.hears(events.JoinDelayed, &events.JoinDelay{Node: "n1", Incarnation: "i1", Seconds: 60, Reason: "it failed 3 times"})
	asked := now.Add(time.Minute).UTC().Format(time.TimeOnly)
	n.expect("waits since " + now.Format(time.TimeOnly) + " this node is asked at " + asked + ": it failed 3 times")
	n.hears(events.JoinDelayed, &events.JoinDelay{Node: "n1", Incarnation: "older", Seconds: 90})
	n.expect("look")
}

func TestATrainerIsToldOnceThatItIsToGoAsAUserAsked(t *testing.T) {
	n := trainingNode(t, 15)
	leave := opening("g4", 4, false, "n1", "n2")
	leave.Changes = []events.Change{{Kind: events.ChangeLeave, Node: "n1", Cause: "x", Reason: "its rack is moved"}}
	n.hears(events.NegotiationOpened, leave)
	again := opening("g5", 4, false, "n1", "n2")
	again.Changes = leave.Changes
	n.hears(events.NegotiationOpened, again)
	told := 0
	for _, line := range n.told {
		if line == "leaving: its rack is moved" {
			told++
		}
	}
	if told != 1 {
		t.Errorf("the trainer is told %d times that it is to go, want once: %q", told, n.told)
	}
}

// reknit drain watches what becomes of its own request: a second one would be refused once a plan does without the node.
func TestANodeThatAUserHasLeaveDoesNotAskForTheSame(t *testing.T) {
	n := trainingNode(t, 15)
	leave := opening("g4", 4, false, "n1", "n2")
	leave.Changes = []events.Change{{Kind: events.ChangeLeave, Node: "n1", Cause: "x"}}
	n.hears(events.NegotiationOpened, leave)
	n.told = nil
	n.do(n.machine.Leave(now, "the trainer asked to", 0))
	n.expect()
	n.hears(events.MembershipRefused, refusal("", events.ChangeLeave, false))
	n.do(n.machine.Leave(now, "the trainer asked to", 0))
	n.expect("stays", "say membership.leave-requested: the trainer asked to")
}
