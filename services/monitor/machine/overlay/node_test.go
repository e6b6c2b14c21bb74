package overlay_test

import (
	"testing"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine/overlay"
)

func TestOneSlowStepOfOneNodeIsNotTheStepTimeOfAll(t *testing.T) {
	nodes := []overlay.Node{{}} // nothing was heard of one
	for _, seconds := range []float64{0.25, 0, 3, 0.24, 0.26, 0.25} {
		nodes = append(nodes, overlay.Node{Pulse: &events.Pulse{StepSeconds: seconds}})
	}
	if took := overlay.StepTime(nodes); took != 0.25 {
		t.Errorf("a step takes %v s", took)
	}
	if took := overlay.StepTime(nodes[:1]); took != 0 {
		t.Errorf("nobody told, and a step takes %v s", took)
	}
}
