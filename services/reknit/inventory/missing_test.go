package inventory

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine/overlay"
	"github.com/reknit/reknit/services/reknit/tell"
)

func TestWhoIsMissedInOneWayIsNamedTogether(t *testing.T) {
	var nodes []overlay.Node
	for i := range 12 {
		node := overlay.Node{Node: fmt.Sprint("n", i), State: overlay.Silent}
		if i < 2 {
			node.State, node.Reason = overlay.Lost, "its trainer is gone: killed"
		}
		nodes = append(nodes, node)
	}
	nodes = append(nodes, overlay.Node{Node: "s", State: overlay.Suspected}, overlay.Node{Node: "t", State: overlay.Training})
	want := "n0, n1 are lost: their trainers are gone: killed|n2, n3, n4, n5, n6, n7, n8, n9 and 2 more are silent: " +
		"no heartbeat came in 1.2s|s is suspected"
	if got := strings.Join(missing(nodes), "|"); got != want {
		t.Errorf("named as %s, expected %s", got, want)
	}
}

// Nobody saw whether a node had been silent for a second or for a minute.
func TestOfASuspectedNodeItIsToldSinceWhenNothingIsHeard(t *testing.T) {
	s := newSite(t)
	s.plan()
	s.beat("n1", "n3")
	s.serve("monitor", "negotiator", "planner", "restorer")
	s.say(events.NodeSuspected, "/monitor", "n2",
		&events.NodeState{Node: "n2", Incarnation: "i", Reason: "no heartbeat", SilentSeconds: 20})
	_, err := s.run(Status())
	says := regexp.MustCompile(`n2 is suspected: no heartbeat since \d\d:\d\d:\d\d, 2\ds ago`)
	if !errors.As(err, &tell.NotWell{}) || !says.MatchString(err.Error()) {
		t.Errorf("ends with %v", err)
	}
}

// Status told of n4 and n5 nothing at all once the others had a plan without them.
func TestWhoIsGoneIsToldWithWhenWhyAndHowItComesBack(t *testing.T) {
	s := newSite(t)
	s.plan()
	s.beat("n1", "n2", "n3")
	s.serve("monitor", "negotiator", "planner", "restorer")
	for _, node := range []string{"n4", "n5", "n6"} {
		s.join(node, "i")
	}
	s.say(events.LeaveRequested, "/user", "n4", &events.Leave{Node: "n4", Reason: "a user asked"})
	s.say(events.NodeLost, "/monitor", "n5", &events.NodeState{Node: "n5", Incarnation: "i", Reason: "no heartbeat"})
	s.say(events.MembershipRefused, "/negotiator", "n6",
		&events.Refusal{Node: "n6", Refused: events.RefusedMembership, Incarnation: "i", Reason: "outvoted: other settings"})
	printed, err := s.run(Status())
	const at = ` at \d\d:\d\d:\d\d: `
	for _, says := range []string{
		"gone        n6 was given up" + at + "outvoted: other settings; it comes back by itself where it runs on",
		"gone        n5 was given up" + at + "no heartbeat; it comes back by itself where it runs on; else start it again",
		"gone        n4 left" + at + `a user asked; start it again to have it back \(reknit agent run -- COMMAND\)`,
	} {
		if err != nil || !regexp.MustCompile(says).MatchString(printed) {
			t.Errorf("%v, expected %q in\n%s", err, says, printed)
		}
	}
	s.join("n4", "j")
	s.join("n5", "j")
	s.join("n6", "j")
	if printed, err := s.run(Status()); err != nil || strings.Contains(printed, "gone ") {
		t.Errorf("all are back: %v in\n%s", err, printed)
	}
}
