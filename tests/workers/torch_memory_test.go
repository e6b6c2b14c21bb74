package workers

import (
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
)

// A PyTorch job tells by itself what its state takes, without a word of the script: eight layers of 64 numbers of eight bytes, their
// gradients, and the copies that an agent keeps beside them.
func TestAPlanThatAPyTorchJobCouldNotHoldIsRefusedByWhatItsStateTakes(t *testing.T) {
	t.Parallel()
	needPyTorch(t)
	c := newCluster(t, 1, endless)
	c.script = []string{pytorch, "torch_worker.py"}
	c.startWith("small", []string{"WORKER_MEMORY_BYTES=8191"})
	refused := c.awaitEvent(events.PlanRefused, func(events.Event) bool { return true })
	failure, err := events.Open[events.Failure](refused)
	if expected := "can hold the model of 48 KiB, got 0, and the largest has 8 KiB"; err != nil || !strings.Contains(failure.Reason, expected) {
		t.Errorf("%q, %v: expected that no node %s", failure.Reason, err, expected)
	}
}
