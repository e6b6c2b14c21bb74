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
