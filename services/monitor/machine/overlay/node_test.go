package overlay

import (
	"testing"

	"github.com/reknit/reknit/events"
)

func TestOneSlowStepOfOneNodeIsNotTheStepTimeOfAll(t *testing.T) {
	nodes := []Node{{}} // nothing was heard of one
	for _, seconds := range []float64{0.25, 0, 3, 0.24, 0.26, 0.25} {
		nodes = append(nodes, Node{Pulse: &events.Pulse{StepSeconds: seconds}})
	}
	if took := StepTime(nodes); took != 0.25 {
		t.Errorf("a step takes %v s", took)
	}
	if took := StepTime(nodes[:1]); took != 0 {
		t.Errorf("nobody told, and a step takes %v s", took)
	}
}
