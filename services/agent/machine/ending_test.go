package machine

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

// finishes has a node make its last step, and tell so.
func finishes(t *testing.T) *node {
	n := trainingNode(t, 59, func(s *Settings) { s.Job.Steps = 60 })
	n.stands(60)
	n.machine.Digested(now, 60, true, nil)
	n.told = nil
	return n
}

// waits lets minutes pass, and returns how often the node told that training is complete for it.
func (n *node) waits(minutes int) (told int) {
	n.t.Helper()
	for half := range 2 * minutes {
		at := now.Add(time.Duration(n.minutes)*time.Minute + time.Duration(half+1)*time.Minute/2)
		for _, action := range n.machine.DigestedAgain(at) {
			if say, isSaid := action.(Say); isSaid {
				told++
				n.ids = append(n.ids, say.Event.ID)
				n.ending, _ = events.Open[events.Digests](say.Event)
			}
			n.told = append(n.told, words(action))
		}
	}
	n.minutes += minutes
	return told
}

func TestWhoMadeTheLastStepTellsSoEachMinuteUntilTheJobIsComplete(t *testing.T) {
	n := finishes(t)
	if told := n.waits(3); told != 3 {
		t.Errorf("it told so %d times in three minutes", told)
	}
	if n.ids[0] == n.ids[1] || n.ids[1] == n.ids[2] {
		t.Errorf("%v: the log takes what it knows for a repeat", n.ids)
	}
	n.hears(events.TrainingCompleted, &events.JobEnd{Generation: 3, Step: 60, Nodes: []string{"n1", "n2"}})
	if told := n.waits(3); told > 0 {
		t.Errorf("it told so %d times after the end", told)
	}
}

// A trainer may tell its end twice, once without digests, for it was to hurry, say.
func TestNoTwoWordsOfTheEndHaveOneId(t *testing.T) {
	n := finishes(t)
	n.waits(2)
	second := n.machine.Digested(now, 60, true, []events.UnitDigest{{Unit: 0, Digest: events.Digest(nil)}})
	n.waits(2)
	ids := append(n.ids, second.ID)
	slices.Sort(ids)
	if len(slices.Compact(slices.Clone(ids))) != 5 {
		t.Errorf("of five words some have one id: %q", ids)
	}
}

// The digests are of the step at which they were told first.
func TestAtALaterStepTheEndIsToldWithoutTheDigestsOfTheOneBefore(t *testing.T) {
	n := trainingNode(t, 59)
	n.machine.Digested(now, 59, true, []events.UnitDigest{{Unit: 0, Digest: events.Digest(nil)}})
	for _, step := range []uint64{59, 60} {
		n.machine.Completed(now, step, 1)
		n.waits(1)
		told := n.ending
		if told.Step != step || (len(told.Units) == 1) != (step == 59) {
			t.Errorf("at step %d it tells %+v", step, told)
		}
	}
}

func TestWhatAPlanBeforeWasToldIsNotToldAgainUnderTheNext(t *testing.T) {
	n := finishes(t)
	n.commits(plan(4, 60, "n1", "n2"))
	n.stands(60)
	if told := n.waits(3); told > 0 {
		t.Errorf("it told so %d times under a plan under which nothing is told yet", told)
	}
}

// Another's script may evaluate and upload for hours after its last step: were this node to go, a plan without it would have
// that begun anew. And nobody has decided that the job is complete.
func TestNobodyGoesBeforeSomebodySaysThatTheJobIsComplete(t *testing.T) {
	n := finishes(t)
	if told := n.waits(5 * 60); told != 5*60 {
		t.Errorf("it told so %d times in five hours", told)
	}
	if n.saidOf("end ") > 0 {
		t.Errorf("it does %q: nobody has said that the job is complete", n.told)
	}
}

func TestWhoWaitsForLongAtTheEndSaysOnceWhatFor(t *testing.T) {
	n := finishes(t)
	n.waits(9)
	if n.saidOf(endWaits) > 0 {
		t.Errorf("after nine minutes it says %q", n.told)
	}
	n.waits(60)
	n.commits(plan(4, 60, "n1", "n2")) // under which it goes on
	if n.saidOf(endWaits) != 1 || !slices.Contains(n.told, "waits since "+now.Format(time.TimeOnly)) {
		t.Errorf("in an hour and under the next plan it says %q", n.told)
	}
}

func TestWhileSomebodyIsWaitedForThatIsWhatIsSaid(t *testing.T) {
	n := finishes(t)
	n.hears(events.ClusterHeld, &events.Hold{Reason: "waiting for n2", Awaits: []string{"n2"}})
	if told := n.waits(90); told != 90 || n.saidOf(endWaits) > 0 {
		t.Errorf("in 90 minutes of a wait it told its end %d times, and says %q", told, n.told)
	}
}

func (n *node) saidOf(what string) (times int) {
	for _, line := range n.told {
		if strings.Contains(line, what) {
			times++
		}
	}
	return times
}

func TestWhoBringsAnotherJobToACompleteOneEndsOtherwiseThanWhoBringsTheSame(t *testing.T) {
	for _, isOther := range []bool{true, false} {
		n := newNode(t)
		actions, err := n.machine.Handle(n.event(events.MembershipRefused, &events.Refusal{
			Node: "n1", Incarnation: "i1", Refused: events.ChangeJoin, Reason: "step 40 was made", Complete: true, OtherJob: isOther,
		}))
		if err != nil || len(actions) != 1 {
			t.Fatalf("%v: it does %v", err, actions)
		}
		if end := actions[0].(End); end.OtherJob != isOther || end.Complete == isOther {
			t.Errorf("another job %t: it ends with %+v", isOther, end)
		}
	}
}
