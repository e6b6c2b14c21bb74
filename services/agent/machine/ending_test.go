package machine

import (
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

func TestWhatAPlanBeforeWasToldIsNotToldAgainUnderTheNext(t *testing.T) {
	n := finishes(t)
	n.commits(plan(4, 60, "n1", "n2"))
	n.stands(60)
	if told := n.waits(3); told > 0 {
		t.Errorf("it told so %d times under a plan under which nothing is told yet", told)
	}
}

func TestWhoNobodyAnswersForAnHourEnds(t *testing.T) {
	n := finishes(t)
	n.waits(60)
	n.told = nil
	n.waits(2)
	if len(n.told) != 1 || !strings.Contains(n.told[0], "for 1h0m0s nobody has said that the job is complete") {
		t.Errorf("it does %q, expected that it ends", n.told)
	}
}

func TestWhileSomebodyIsWaitedForNobodyEnds(t *testing.T) {
	n := finishes(t)
	n.waits(50)
	n.hears(events.ClusterHeld, &events.Hold{Reason: "waiting for n2", Awaits: []string{"n2"}})
	if told := n.waits(90); told != 90 {
		t.Errorf("it told so %d times in 90 minutes of a wait", told)
	}
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
