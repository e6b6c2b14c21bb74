package machine

import (
	"slices"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
)

func isHeld(n *node, reason string) {
	n.t.Helper()
	n.hears(events.ClusterHeld, &events.Hold{Reason: reason, Awaits: []string{"n2"}})
}

func TestWhyTrainingWaitsIsToldOnceAndThatItGoesOn(t *testing.T) {
	since := "waits since " + now.Format("15:04:05")
	n := newNode(t)
	n.stands(0)
	isHeld(n, "no layer 1")
	isHeld(n, "no layer 1")
	n.expect(since + " no layer 1")
	isHeld(n, "no layer 2")
	n.expect(since + " no layer 2")
	n.commits(plan(3, 0, "n1", "n2"))
	n.expect("adopt [{0 2}] at 0", since, "train under 3, new")
	n.stands(1)
	n.expect("train under 3")
}

func TestANodeWithoutAPlaceHearsThatTrainingGoesOn(t *testing.T) {
	since := "waits since " + now.Format("15:04:05")
	n := trainingNode(t, 20)
	isHeld(n, "no layer 1")
	without := plan(4, 20, "n1", "n2")
	without.Pipelines, without.Data.GlobalBatch = without.Pipelines[1:], 1
	n.commits(without)
	n.stands(20)
	n.expect(since+" no layer 1", "adopt [] at 20", since)
	isHeld(n, "no layer 1")
	n.expect(since + " no layer 1")
}

func TestWhoJoinsAgainHearsAnewWhyTrainingWaits(t *testing.T) {
	n := trainingNode(t, 20)
	isHeld(n, "no layer 1")
	n.told = nil
	n.do(n.machine.Join(now, "i2", false))
	n.told = nil
	isHeld(n, "no layer 1")
	n.expect("waits since " + now.Format("15:04:05") + " no layer 1")
}

func TestTheLastStepsBeforeAllStopDoNotEndTheWait(t *testing.T) {
	n := trainingNode(t, 20)
	n.hears(events.NegotiationOpened, opening("g4", 4, false, "n1", "n2"))
	prepare(n, "g4", 4)
	n.told = nil
	isHeld(n, "waiting for n2")
	n.expect("waits since " + now.Format("15:04:05") + " waiting for n2")
	n.stands(21)
	n.expect("train under 3")
}

// One that told a new log of a lost plan is waited for by name, and stood still while another process asked by its name.
func TestWhoIsWaitedForThoughItAskedForAPlaceLooksWhetherAnotherHasItsName(t *testing.T) {
	since := "waits since " + now.Format("15:04:05")
	n := trainingNode(t, 20)
	isHeld(n, "n2 may live")
	n.told = nil
	n.do(n.machine.Join(now, "i2", false))
	n.told = nil
	isHeld(n, "n2 may live")
	n.expect(since + " n2 may live")
	n.hears(events.ClusterHeld, &events.Hold{Reason: "n1 may live", Awaits: []string{"n1"}})
	n.expect("look", since+" n1 may live")
}

// The last of three gave up its step late, took up a plan that the second had ended under meanwhile, and said that training goes on.
func TestAPlanThatIsTakenUpLateDoesNotEndAHoldThatCameBehindIt(t *testing.T) {
	n := trainingNode(t, 20)
	n.hears(events.NegotiationOpened, opening("g4", 4, true, "n1", "n2", "n3"))
	n.commits(plan(4, 20, "n1", "n2"))
	n.hears(events.NegotiationOpened, opening("g5", 5, true, "n1"))
	n.hears(events.Aborted, &events.Abort{Negotiation: "g5", Generation: 5, Reason: "step 20 is held"})
	isHeld(n, "step 20 is held")
	n.told = nil
	n.stands(20)
	for _, told := range n.told {
		if strings.HasPrefix(told, "waits since") {
			t.Errorf("it tells %q: expected nothing before the hold ends", told)
		}
	}
	n.commits(plan(5, 20, "n1"))
	if since := "waits since " + now.Format("15:04:05"); !slices.Contains(n.told, since) {
		t.Errorf("it tells %q: expected that training goes on", n.told)
	}
}
