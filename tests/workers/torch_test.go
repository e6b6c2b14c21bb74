package workers

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// pytorch is the interpreter that has PyTorch: PYTHON names it.
var pytorch = cmp.Or(os.Getenv("PYTHON"), "python3")

var importsPyTorch = sync.OnceValue(func() bool { return exec.Command(pytorch, "-c", "import torch").Run() == nil })

// turns are those of tests with PyTorch, of which each process computes for three seconds before it joins: the others need processors, too.
var turns = make(chan struct{}, 3)

// needPyTorch returns when it is the test's turn.
func needPyTorch(t *testing.T) {
	if !importsPyTorch() {
		t.Skipf("%s cannot import torch", pytorch)
	}
	turns <- struct{}{}
	t.Cleanup(func() { <-turns })
}

func TestAPyTorchTrainerIsKilledBetweenTheSumsOfAStepAndNothingIsLostOrCountedTwice(t *testing.T) {
	t.Parallel()
	needPyTorch(t)
	c := newCluster(t, 2, endless)
	c.script = []string{pytorch, "torch_worker.py"}
	stays, dies := c.start("n1"), c.startWith("n2", []string{"WORKER_DIES_AT=40"})
	stays.untilWorld(2)
	t.Logf("a step alone after %v", stays.untilWorld(1))
	t.Logf("a step with two after %v: its agent started the trainer again", stays.untilWorld(2))
	c.expectTheStateOfTrainingAlone(stays, dies)
}

func TestAnOrdinaryPyTorchScriptThatLosesRankZeroGoesOnFromItsSnapshot(t *testing.T) {
	t.Parallel()
	needPyTorch(t)
	p := newPlain(t, 2)
	snapshot := filepath.Join(p.dir, "snapshot.pt")
	p.script = []string{pytorch, "../../services/agent/examples/pytorch/ddp.py", "--text", "worker.py", "--steps", "100000",
		"--snapshot", snapshot}
	p.settings = []string{"OMP_NUM_THREADS=1", "GLOO_SOCKET_IFNAME=lo", "PYTHONDONTWRITEBYTECODE=1"}
	first, second := p.join("n1"), p.join("n2")
	for _, w := range []*worker{first, second} {
		w.await("a step after the first snapshot", func(line said) bool { return line.World == 2 && line.Step > 20 })
	}
	p.lose(first) // rank 0
	alone := second.await("a step alone", func(line said) bool { return line.World == 1 && line.Step > 0 })
	if alone.Step <= 20 {
		t.Errorf("it goes on with step %d: expected the snapshot of step 20 at least", alone.Step)
	}
}
