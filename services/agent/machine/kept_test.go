package machine

import "testing"

// A neighbour that says how far it came can be a step ahead, and no further: a step is made once all have made the one before.
func TestNobodyIsMoreThanAStepAhead(t *testing.T) {
	trains, waits := trainingNode(t, 20), newNode(t)
	for _, row := range []struct {
		node *node
		step uint64
		can  bool
	}{{trains, 12, true}, {trains, 21, true}, {trains, 22, false}, {trains, 1 << 60, false}, {waits, 1 << 60, true}} {
		if err := row.node.machine.CheckStep(row.step); (err == nil) != row.can {
			t.Errorf("step %d: %v", row.step, err)
		}
	}
}
