package workers

import (
	"os/exec"
	"testing"
)

// pytorch is the interpreter for which the system's PyTorch is installed.
const pytorch = "/usr/bin/python3"

func TestAPyTorchTrainerIsKilledBetweenTheSumsOfAStepAndNothingIsLostOrCountedTwice(t *testing.T) {
	if err := exec.Command(pytorch, "-c", "import torch").Run(); err != nil {
		t.Skipf("PyTorch is not installed for %s", pytorch)
	}
	c := newCluster(t, 2, 300)
	c.script = []string{pytorch, "torch_worker.py"}
	slow := "WORKER_STEP_SECONDS=0.03" // the trainer is back before the other one has ended
	stays, dies := c.startWith("n1", []string{slow}), c.startWith("n2", []string{slow, "WORKER_DIES_AT=40"})
	stays.untilWorld(2)
	t.Logf("a step alone after %v", stays.untilWorld(1))
	t.Logf("a step with two after %v: its agent started the trainer again", stays.untilWorld(2))
	c.expectTheStateOfTrainingAlone(stays, dies)
}
