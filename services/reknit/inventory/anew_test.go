package inventory

import (
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
)

func TestAJobThatIsToBeginAnewWaitsForNodesAndIsNoProblem(t *testing.T) {
	s := newSite(t)
	s.plan()
	s.serve("monitor", "negotiator", "planner", "restorer")
	for _, node := range []string{"n1", "n2", "n3"} {
		s.say(events.NodeLost, "/monitor", node, &events.NodeState{Node: node, Incarnation: "i", Reason: "interrupted", Step: 40})
	}
	s.say(events.ClusterHeld, "/negotiator", "c", &events.Hold{Reason: "its state is gone"})
	s.say(events.TrainingReset, "/negotiator", "c", &events.JobReset{Generation: 1, Reason: "a wrong setting"})
	printed, err := s.run(Status())
	if err != nil || !strings.Contains(printed, "begins anew once nodes join, as somebody asked: a wrong setting") {
		t.Errorf("%v in\n%s", err, printed)
	}
}

func TestAJobThatFailedInItsFirstStepIsToldToBeginAsTheNegotiatorSays(t *testing.T) {
	s := newSite(t)
	s.plan()
	s.serve("monitor", "negotiator", "planner", "restorer")
	for _, node := range []string{"n1", "n2", "n3"} {
		s.say(events.NodeLost, "/monitor", node, &events.NodeState{Node: node, Incarnation: "i", Reason: "its trainer is gone"})
	}
	s.say(events.ClusterHeld, "/negotiator", "c", &events.Hold{Reason: "no step was made: training begins once nodes join"})
	_, err := s.run(Status())
	if err == nil || !strings.Contains(err.Error(), "training begins once nodes join") || strings.Contains(err.Error(), "To begin anew") {
		t.Error(err)
	}
}

// The log keeps that the cluster was held for a node that came after a stop, and has gone since.
func TestAfterAStopNobodyIsWaitedForWhoIsGoneAgain(t *testing.T) {
	for how, goes := range map[string]func(*site){
		"its process ended": func(s *site) {
			s.say(events.NodeLost, "/monitor", "n4", &events.NodeState{Node: "n4", Incarnation: "j", Reason: "no heartbeat"})
			s.say(events.MembershipRefused, "/negotiator", "n4",
				&events.Refusal{Node: "n4", Refused: events.RefusedMembership, Incarnation: "j", Reason: "lost: no heartbeat"})
		},
		"it is told to stop": func(s *site) {
			s.say(events.MembershipRefused, "/negotiator", "n4",
				&events.Refusal{Node: "n4", Refused: events.ChangeJoin, Incarnation: "j", Reason: "training has stopped", Stopped: true})
		},
	} {
		t.Run(how, func(t *testing.T) {
			s := newSite(t)
			s.plan()
			s.serve("monitor", "negotiator", "planner", "restorer")
			stop := &events.JobStop{Generation: 1, Step: 478, Tier: "disk", Plan: events.Digest(nil)}
			s.say(events.TrainingStopped, "/negotiator", "c", stop)
			s.join("n4", "j")
			s.say(events.ClusterHeld, "/negotiator", "c", &events.Hold{Reason: "waiting for more nodes: 1 joined"})
			goes(s)
			printed, err := s.run(Status())
			if err != nil || !strings.Contains(printed, "stopped at step 478") || strings.Contains(printed, "waiting") {
				t.Errorf("%v in\n%s", err, printed)
			}
		})
	}
}
