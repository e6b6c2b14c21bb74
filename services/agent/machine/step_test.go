package machine

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

// holding is what a trainer holds after so many steps: these, newest first.
func holding(steps ...uint64) []events.Holding {
	return []events.Holding{{Units: events.Range{End: 2}, Steps: steps}}
}

func TestAStepThatBreaksIsToldOnceAndNothingIsTrainedBeforeAllGiveTheirsUp(t *testing.T) {
	n := trainingNode(t, 15)
	n.holds = holding(16, 15)
	n.do(n.machine.Broken(now, "all-reduce timed out"))
	n.do(n.machine.Broken(now, "all-reduce timed out"))
	n.expect("say step.broken: all-reduce timed out")
	n.stands(15)
	n.expect()
	n.hears(events.NegotiationOpened, opening("g4", 4, true, "n1", "n2"))
	n.expect("tell holdings", "say negotiation.consented g4 true at 15: 1 holdings")
	n.commits(plan(4, 15, "n1", "n2"))
	n.expect("adopt [{0 2}] at 15", "train under 4, new, after steps were given up")
	n.stands(16)
	n.expect("train under 4")
}

func TestATrainerForWhichTheOthersWaitInTheirStepIsNamedToWhoReadsItsLog(t *testing.T) {
	n := trainingNode(t, 15)
	delay := events.StepDelay{
		Node: "n1", Incarnation: "i1", Generation: 3, Step: 15, By: "n2", Phase: events.PhaseBetween, Reason: "n2 has waited for it for 2.1 s",
	}
	n.hears(events.StepDelayed, &delay)
	n.expect("awaited in step 16: n2 has waited for it for 2.1 s")
	for _, other := range []func(*events.StepDelay){
		func(d *events.StepDelay) { d.Node = "n2" },
		func(d *events.StepDelay) { d.Incarnation = "older" },
		func(d *events.StepDelay) { d.Generation = 2 },
		func(d *events.StepDelay) { d.By = "n1" },
	} {
		changed := delay
		other(&changed)
		n.hears(events.StepDelayed, &changed)
	}
	n.hears(events.NegotiationOpened, opening("g4", 4, true, "n1", "n2"))
	n.hears(events.StepDelayed, &delay)
	n.expect("abandon")
}

func TestAStepThatIsToBeGivenUpAnywayIsNotTold(t *testing.T) {
	n := trainingNode(t, 15)
	n.hears(events.NegotiationOpened, opening("g4", 4, true, "n1", "n2"))
	n.do(n.machine.Broken(now, "connection reset"))
	n.expect("abandon")
}

// Each one's word counts of who is outvoted.
func TestThatTrainersWouldApplyDifferentThingsIsToldThoughTheStepIsToBeGivenUpAnyway(t *testing.T) {
	n := trainingNode(t, 15)
	n.holds = holding(15)
	n.hears(events.NegotiationOpened, opening("g4", 4, true, "n1", "n2"))
	n.do(n.machine.Disputed(now, "other settings", []string{"n2"}))
	n.expect("abandon", "say step.broken: other settings")
	n.stands(15)
	n.expect("tell holdings", "say negotiation.consented g4 true at 15: 1 holdings")
	n.commits(plan(4, 15, "n1", "n2"))
	n.expect("adopt [{0 2}] at 15", "train under 4, new, after steps were given up")
	n.do(n.machine.Disputed(now, "other settings", nil))
	n.expect("say step.broken: other settings")
	n.stands(15)
	n.expect()
}

// A plan that takes over at a step which this node cannot reach does not make its state right.
func TestANodeWhoseStepBrokeAdoptsNoPlanOfALaterStep(t *testing.T) {
	n := trainingNode(t, 15)
	n.hears(events.NegotiationOpened, opening("g4", 4, false, "n1", "n2"))
	prepare(n, "g4", 4)
	n.do(n.machine.Broken(now, "timed out"))
	n.stands(15)
	n.told = nil
	n.commits(plan(4, 17, "n1", "n2"))
	n.expect()
	n.hears(events.NegotiationOpened, opening("g5", 5, true, "n1", "n2"))
	n.expect("tell holdings", "say negotiation.consented g5 true at 15: 0 holdings")
	n.commits(plan(5, 15, "n1", "n2"))
	n.expect("adopt [{0 2}] at 15", "train under 5, new, after steps were given up")
}

func TestAnAgentThatKnowsWhatItsTrainerHoldsConsentsWhileTheTrainerIsInItsStep(t *testing.T) {
	n := trainingNode(t, 15)
	n.hears(events.NegotiationOpened, opening("g4", 4, true, "n1", "n2"))
	n.do(n.machine.Frozen(holding(16, 15)))
	n.expect("abandon", "say negotiation.consented g4 true at 15: 1 holdings")
	n.do(n.machine.Late())
	n.expect() // it has consented
	n.hears(events.NegotiationOpened, opening("g4-again", 4, true, "n1"))
	n.expect("say negotiation.consented g4-again true at 15: 1 holdings")
	n.commits(plan(4, 15, "n1"))
	n.expect() // the trainer is still in its step
	n.stands(15)
	n.expect("adopt [{0 2}] at 15", "train under 4, new, after steps were given up")
}

func TestWhatATrainerHeldInOneStepIsNotToldOfTheNext(t *testing.T) {
	n := trainingNode(t, 15)
	n.hears(events.NegotiationOpened, opening("g4", 4, true, "n1", "n2"))
	n.do(n.machine.Frozen(holding(15)))
	n.stands(15)
	n.commits(plan(4, 15, "n1", "n2"))
	n.stands(16)
	n.told = nil
	n.hears(events.NegotiationOpened, opening("g5", 5, true, "n1", "n2"))
	n.expect("abandon")
}

func TestANewcomersAgentDoesNotVouchForWhatItsTrainerTrainedBefore(t *testing.T) {
	n := trainingNode(t, 15)
	n.hears(events.NegotiationOpened, opening("g4", 4, true, "n1", "n2"))
	n.do(n.machine.Join(now, "i2", false)) // its trainer is still in the step
	n.told = nil
	n.hears(events.NegotiationOpened, rejoined("g4-again", 4))
	n.do(n.machine.Frozen(holding(15)))
	n.expect("say negotiation.delayed g4-again: it digests what it claims")
}

// rejoined is an opening that names n1 as i2.
func rejoined(id string, generation uint64) *events.Opening {
	opening := opening(id, generation, true, "n1", "n2")
	opening.Members[0].Incarnation = "i2"
	return opening
}

func TestAnAgentWhoseTrainerIsInAStepThatItCannotInterruptSaysForHowLong(t *testing.T) {
	n := trainingNode(t, 14)
	n.machine.Completed(now, 15, 60)
	n.stands(15)
	n.told = nil
	n.hears(events.NegotiationOpened, opening("g4", 4, true, "n1", "n2"))
	delays := n.machine.Late()
	delay, err := events.Open[events.Delay](delays[0].(Say).Event)
	if err != nil || len(delays) != 1 || delay.Seconds != 180 {
		t.Fatalf("said %+v, %v", delay, err)
	}
	n.told = nil
	n.hears(events.NegotiationOpened, opening("g4-again", 4, true, "n1"))
	n.expect("say negotiation.delayed g4-again: it gives up its step") // at once now
	n.stands(15)
	n.expect("tell holdings", "say negotiation.consented g4-again true at 15: 0 holdings")
}

// Every thousandth step is followed by an evaluation, say. The stall before the first step of a plan is no such pause.
func TestATrainerThatPausedForLongBeforeMayDoSoAgain(t *testing.T) {
	n := newNode(t)
	n.commits(plan(3, 10, "n1", "n2"))
	n.stands(0)
	for i, after := range []time.Duration{time.Hour, time.Hour + time.Second, time.Hour + 5*time.Minute} {
		n.machine.Completed(now.Add(after), uint64(11+i), 1)
		n.stands(uint64(11 + i))
	}
	actions, err := n.machine.Handle(n.event(events.NegotiationOpened, opening("g4", 4, true, "n1", "n2")))
	if abandon, is := actions[0].(Abandon); err != nil || !is || abandon.Within != 598*time.Second {
		t.Errorf("%+v, %v", actions, err)
	}
}

func TestATrainerThatDoesNotGiveUpItsStepIsLostAndClaimsWhatItHoldsShouldItComeBack(t *testing.T) {
	n := trainingNode(t, 15)
	n.claims = []events.Claim{{Unit: 0, Step: 15, Digest: events.Digest(nil)}}
	n.hears(events.NegotiationOpened, opening("g4", 4, true, "n1", "n2"))
	hung := n.machine.Hung(now)
	if exit, err := events.Open[events.Exit](hung[0].(Say).Event); err != nil || !exit.Hangs {
		t.Fatalf("its process lives: said %+v, %v", exit, err)
	}
	n.do(hung)
	n.expect("abandon", "say node.exited: the step that it was to give up has not ended for 10m0s")
	n.hears(events.NegotiationOpened, opening("g4-again", 4, true, "n1", "n2"))
	n.expect()
	n.stands(15)
	n.expect("rejoin", "say membership.join-requested i2")
	n.hears(events.NegotiationOpened, rejoined("g4-last", 4))
	n.expect("say negotiation.delayed g4-last: it digests what it claims", "tell claims",
		"say negotiation.consented g4-last true at 0: 0 holdings, 1 claims of plan 3")
}

func TestTheTimeInWhichOthersTrainedWithoutItIsNoStallOfWhoComesBack(t *testing.T) {
	refused := func(n *node) { n.hears(events.MembershipRefused, refusal("i1", events.RefusedMembership, false)) }
	without := func(n *node) { n.commits(plan(4, 15, "n2")) }
	for name, test := range map[string]struct {
		happens []func(*node)
		stall   float64
	}{
		"it stays":                                {nil, 59},
		"it was given up, and nobody went on":     {[]func(*node){refused}, 59},
		"it was given up, and the others went on": {[]func(*node){refused, without}, 0},
		"the others went on before it heard so":   {[]func(*node){without, refused}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			n := trainingNode(t, 14)
			n.machine.Completed(now, 15, 1)
			for _, next := range test.happens {
				next(n)
			}
			again := opening("g4", 4, true, "n1", "n2")
			if test.happens != nil {
				n.stands(15)
				again = rejoined("g5", 5)
			}
			n.hears(events.NegotiationOpened, again)
			n.stands(15)
			next := plan(again.Generation, 15, "n1", "n2")
			next.Nodes[0].Incarnation = again.Members[0].Incarnation
			n.commits(next)
			says := n.machine.Completed(now.Add(time.Minute), 16, 1)
			if len(says) != 1 {
				t.Fatalf("it says %+v after %q", says, n.told)
			}
			told, err := events.Open[events.Activation](says[0].(Say).Event)
			if err != nil || told.StallSeconds != test.stall {
				t.Errorf("it says %+v, %v", told, err)
			}
		})
	}
}

// It may be the last to hold something, and is killed by who is its parent once it is stuck.
func TestATrainerThatHangsIsStuckOnceAPlanDoesWithoutIt(t *testing.T) {
	hangs := func(n *node) { n.do(n.machine.Hung(now)) }
	refused := func(n *node) { n.hears(events.MembershipRefused, refusal("i1", events.RefusedMembership, false)) }
	planned := func(n *node) { n.commits(plan(4, 15, "n2")) }
	completed := func(n *node) {
		n.hears(events.TrainingCompleted, &events.JobEnd{Generation: 4, Step: 60, Nodes: []string{"n2"}})
	}
	for name, happens := range map[string][]func(*node){
		"it hangs, and a plan comes":                       {hangs, refused, planned},
		"the plan comes while it is waited for":            {refused, planned, hangs},
		"the plan comes before it hears that it is missed": {planned, refused, hangs},
		"the others complete the job":                      {refused, planned, completed, hangs},
		"it hangs, and the others complete the job":        {hangs, refused, completed},
		"they had completed it before they missed it":      {completed, hangs},
	} {
		t.Run(name, func(t *testing.T) {
			n := trainingNode(t, 15)
			n.hears(events.NegotiationOpened, opening("g4", 4, true, "n1", "n2"))
			for i, next := range happens {
				if next(n); slices.Contains(n.told, "stuck") != (i == len(happens)-1) {
					t.Fatalf("after %d of %d: %q", i+1, len(happens), n.told)
				}
			}
			n.told = nil
			n.commits(plan(5, 20, "n2"))
			n.expect() // once
		})
	}
}

func TestATrainerThatHasMadeItsStepIsLeftToWhatItDoesAndClaimsWhatItHoldsOnceItIsBack(t *testing.T) {
	n := trainingNode(t, 15)
	n.claims = []events.Claim{{Unit: 0, Step: 16, Digest: events.Digest(nil)}}
	n.hears(events.NegotiationOpened, opening("g4", 4, true, "n1", "n2"))
	away := n.machine.Away(now)
	if exit, err := events.Open[events.Exit](away[0].(Say).Event); err != nil || !exit.Hangs || !exit.Keeps {
		t.Fatalf("it lives, and so does what it holds: said %+v, %v", exit, err)
	}
	n.do(away)
	n.do(n.machine.Hung(now))
	n.hears(events.MembershipRefused, refusal("i1", events.RefusedMembership, false))
	n.commits(plan(4, 16, "n2"))
	n.expect("abandon", "say node.exited: its script has made step 16, and has been doing something else for 2s") // and not stuck
	n.stands(16)
	n.expect("rejoin", "say membership.join-requested i2")
	n.hears(events.NegotiationOpened, rejoined("g5", 5))
	n.expect("say negotiation.delayed g5: it digests what it claims", "tell claims",
		"say negotiation.consented g5 true at 0: 0 holdings, 1 claims of plan 3")
}

func TestATrainerThatIsBackInTimeIsNotStuck(t *testing.T) {
	n := trainingNode(t, 15)
	n.hears(events.NegotiationOpened, opening("g4", 4, true, "n1", "n2"))
	n.do(n.machine.Hung(now))
	n.stands(15)
	n.told = nil
	n.commits(plan(4, 15, "n2"))
	n.expect()
}

// Nobody is left to go on without it: what it holds is the last.
func TestALeaverThatIsCalledBackIsNotStuck(t *testing.T) {
	n := trainingNode(t, 14)
	n.hears(events.NegotiationOpened, opening("g4", 4, false, "n1", "n2"))
	prepare(n, "g4", 4)
	n.commits(plan(4, 17, "n2"))
	n.told = nil
	n.hears(events.MembershipRefused, refusal("i1", events.RefusedMembership, false))
	n.do(n.machine.Hung(now))
	n.expect("abandon")
}

func TestATrainerWhoseStateGivesUnitsDoesNotHang(t *testing.T) {
	n := trainingNode(t, 15)
	n.machine.Capturing(true)
	n.hears(events.NegotiationOpened, opening("g4", 4, true, "n1", "n2"))
	n.do(n.machine.Hung(now))
	n.expect("abandon", "say negotiation.delayed g4: it gives units while it trains")
}

func TestATrainerThatIsAtItsBoundaryDoesNotHang(t *testing.T) {
	n := trainingNode(t, 15)
	n.hears(events.NegotiationOpened, opening("g4", 4, true, "n1", "n2"))
	n.stands(15)
	n.told = nil
	n.do(n.machine.Hung(now))
	n.expect()
}

func TestTheEndOfATrainerIsToldOnceAndEndsTheSession(t *testing.T) {
	n := trainingNode(t, 15)
	n.hears(events.NegotiationOpened, opening("g4", 4, false, "n1", "n2"))
	n.told = nil
	n.machine.Stood(2)
	actions := n.machine.Exited(now, "killed by signal 9", -1)
	if exit, err := events.Open[events.Exit](actions[0].(Say).Event); err != nil || exit.WaitedSeconds != 2 {
		t.Errorf("it tells %+v, %v: expected that the process stood for 2 s", exit, err)
	}
	n.do(actions)
	n.expect("say node.exited: killed by signal 9", "end left=false its trainer is gone: killed by signal 9")
	n.do(n.machine.Exited(now, "killed by signal 9", -1))
	n.hears(events.NegotiationOpened, opening("g4-again", 4, true, "n1", "n2"))
	n.stands(15)
	n.expect()
}

func TestAnAgentThatKeepsWhatItsTrainerLeftSaysSo(t *testing.T) {
	n := trainingNode(t, 15)
	exit, err := events.Open[events.Exit](n.machine.Failed(now, "exit status 1", 1, false, true)[0].(Say).Event)
	if err != nil || !exit.Keeps || exit.Expected || *exit.ExitCode != 1 {
		t.Errorf("said %+v, %v", exit, err)
	}
}

func TestAScriptThatEndsByItselfInAStepTellsWhichStepItWas(t *testing.T) {
	broken := func(n *node) { n.hears(events.NegotiationOpened, opening("g4", 4, true, "n1", "n2")) }
	for name, test := range map[string]struct {
		before func(*node)
		code   int
		inStep bool
		tells  bool
	}{
		"in a step":                          {func(*node) {}, 1, true, true},
		"in a step, of which its agent says": {func(*node) {}, 1, false, true},
		"by others' signal":                  {func(*node) {}, -1, false, false},
		"in a step that others broke":        {broken, 1, false, false},
		"in a step that others gave up before its agent heard of its error": {broken, 1, true, true},
		"while it waits for a plan":                                         {func(n *node) { broken(n); n.stands(15) }, 1, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			n := trainingNode(t, 15)
			test.before(n)
			exit, err := events.Open[events.Exit](n.machine.Failed(now, "ValueError", test.code, test.inStep, true)[0].(Say).Event)
			if err != nil || (exit.Step != nil) != test.tells || test.tells && *exit.Step != 15 {
				t.Errorf("said %+v, %v", exit, err)
			}
		})
	}
}

func TestAnExitTellsWhetherItWasToBeExpected(t *testing.T) {
	for name, test := range map[string]struct {
		before   func(*node)
		total    uint64
		expected bool
	}{
		"in training":          {func(*node) {}, 20, false},
		"training is complete": {func(*node) {}, 15, true},
		"it asked to leave":    {func(n *node) { n.do(n.machine.Leave(now, "spot", 0)) }, 20, true},
	} {
		t.Run(name, func(t *testing.T) {
			n := trainingNode(t, 15, func(s *Settings) { s.Job.Steps = test.total })
			test.before(n)
			exit, err := events.Open[events.Exit](n.machine.Exited(now, strings.Repeat("x", 2000), 0)[0].(Say).Event)
			if err != nil || exit.Expected != test.expected || exit.ExitCode == nil || *exit.ExitCode != 0 ||
				exit.Generation != 3 {
				t.Errorf("said %+v, %v", exit, err)
			}
		})
	}
}

func TestATrainerThatHasLeftOrWasGivenUpIsMissedByNobody(t *testing.T) {
	n := trainingNode(t, 15)
	n.hears(events.MembershipRefused, refusal("i1", events.RefusedMembership, false))
	n.told = nil
	n.do(n.machine.Exited(now, "killed", -1))
	n.expect("end left=false its trainer is gone: killed")
}
