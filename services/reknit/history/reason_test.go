package history

import (
	"strings"
	"testing"

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
