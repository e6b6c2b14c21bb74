package workers

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/reknit/reknit/events"
)

// One test of real processes: whether what an exception says comes to the log, and whether PyTorch's state outlives its script.
func TestARecordThatEndsEachPyTorchScriptIsHeldBeforeTheLastReadsItAndIsPassedOver(t *testing.T) {
	t.Parallel()
	bad := filepath.Join(t.TempDir(), "bad")
	if err := os.WriteFile(bad, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const step, batch = 20, 16
	c := newPerceptron(t, 3, 40, "WORKER_BAD="+bad, "WORKER_BAD_SAMPLE="+itoa(step*batch+5))
	workers := []*worker{c.start("n1"), c.start("n2"), c.start("n3")}
	hold, err := events.Open[events.Hold](c.awaitEvent(events.ClusterHeld, func(event events.Event) bool {
		hold, err := events.Open[events.Hold](event)
		return err == nil && hold.Step != nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	held := hold.Step
	if held.Step != step || held.Samples != (events.Samples{First: step * batch, Count: batch}) || len(held.Died) != 2 ||
		!strings.Contains(hold.Reason, "ValueError: record 325") {
		t.Errorf("held %+v: %s", held, hold.Reason)
	}
	last := workers[slices.IndexFunc(workers, func(w *worker) bool { return !slices.Contains(held.Died, w.node) })]
	last.await("its last step before", func(line said) bool { return line.Done == step })
	if err := syscall.Kill(last.pid, 0); err != nil {
		t.Errorf("the script of %s, the last, is gone: %v", last.node, err)
	}
	if status, err := c.run("status"); err == nil || !strings.Contains(status, "step 20 is held with its samples 320 to 335") {
		t.Errorf("status: %v: %s", err, status)
	}
	c.reknit("step", "skip")
	last.finish() // the others may still load PyTorch
	if err := c.ledger.check(c.plans(), 40); err != nil {
		t.Error(err)
	}
}
