package history

import (
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

func TestTheDetailOfABrokenStepSaysWhyItBroke(t *testing.T) {
	l := newTeller()
	broken := l.say(events.StepBroken, "/node/n2", "n2", &events.BrokenStep{
		Node: "n2", Incarnation: "i", Generation: 1, Step: 7, Reason: "the all-reduce with n3 timed out after 30 s"})
	nodes := []string{"n1", "n2", "n3"}
	l.open("g2", 2, nodes, events.Change{Kind: events.ChangeBroken, Node: "n2", Cause: broken.ID})
	told := l.changes()[0]
	var printed strings.Builder
	detail(&printed, told)
	if says := "  n2: the all-reduce with n3 timed out after 30 s\n"; !strings.Contains(printed.String(), says) {
		t.Errorf("expected %q in\n%s", says, &printed)
	}
}

func TestTheDetailOfAFailureSaysSinceWhenItsNodeWasMissedAndWhenThatWasNoticed(t *testing.T) {
	for says, state := range map[string]events.NodeState{
		"heard last at": {SilentSeconds: 4.2}, "hung from": {WaitedSeconds: 4.2},
	} {
		l := newTeller()
		state.Node, state.Incarnation, state.Reason = "n2", "i", "no heartbeat"
		lost := l.say(events.NodeLost, "/monitor", "n2", &state)
		l.open("g2", 2, []string{"n1", "n3"}, events.Change{Kind: events.ChangeFailure, Node: "n2", Cause: lost.ID})
		var printed strings.Builder
		detail(&printed, l.changes()[0])
		says += " " + lost.Logged.Add(-4200*time.Millisecond).Local().Format("15:04:05") + ", noticed 4.2 s later\n"
		if !strings.Contains(printed.String(), "  n2: no heartbeat\n  n2: "+says) {
			t.Errorf("expected %q in\n%s", says, &printed)
		}
	}
}
