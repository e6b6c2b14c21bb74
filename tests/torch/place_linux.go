package torch

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Python is the interpreter that has PyTorch: PYTHON names it.
var Python = cmp.Or(os.Getenv("PYTHON"), "python3")

// Place says where things lie in the checkout.
type Place struct {
	Reknit   string // the command
	Examples string // the training scripts
	SDK      string // where reknit.py and reknit_torch.py are
	Tests    string // this package
	Text     string // to train on; it comes with every Go distribution

	More func(worker string) []string // of a worker's environment; nil for nothing
}

// Here returns the place of the checkout in the working directory.
func Here() (Place, error) {
	top, err := os.Getwd()
	if err != nil {
		return Place{}, err
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return Place{}, fmt.Errorf("go env GOROOT: %w", err)
	}
	return Place{
		Reknit:   filepath.Join(top, "bin", "reknit"),
		Examples: filepath.Join(top, "services", "agent", "examples", "pytorch"),
		SDK:      filepath.Join(top, "services", "agent", "python"),
		Tests:    filepath.Join(top, "tests", "torch"),
		Text:     filepath.Join(strings.TrimSpace(string(root)), "src", "testdata", "Isaac.Newton-Opticks.txt"),
	}, nil
}

// script returns the path of a script: one of the examples, unless it has a path.
func (p Place) script(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(p.Examples, name)
}

// environment is that of every training script: one core each, and collectives over loopback. NCCL refuses two processes
// of one host on one GPU, so that each is told that it is on a host of its own.
func (p Place) environment(worker string) []string {
	common := []string{openBLAS(), "OMP_NUM_THREADS=1", "GLOO_SOCKET_IFNAME=lo", "PYTHONPATH=" + p.SDK + ":" + p.Examples,
		"PYTHONDONTWRITEBYTECODE=1", "NCCL_SOCKET_IFNAME=lo", "NCCL_IB_DISABLE=1", "NCCL_HOSTID=" + worker}
	if p.More == nil {
		return common
	}
	return append(common, p.More(worker)...)
}

// openBLAS tells OpenBLAS what the processor can: it takes one that is newer than itself for one of 2004, and multiplies
// at 0.4 times the rate (measured with OpenBLAS 0.3.21).
func openBLAS() string {
	processor, _ := os.ReadFile("/proc/cpuinfo") // without it OpenBLAS is left to guess
	if strings.Contains(string(processor), " avx2 ") {
		return "OPENBLAS_CORETYPE=Haswell"
	}
	return "OPENBLAS_CORETYPE="
}

// Find says why there is no PyTorch, if there is none.
func Find(ctx context.Context) error {
	if output, err := exec.CommandContext(ctx, Python, "-c", "import torch").CombinedOutput(); err != nil {
		lines := strings.Split(strings.TrimSpace(string(output)), "\n")
		return fmt.Errorf("%s cannot import torch (%w): %s", Python, err, lines[len(lines)-1])
	}
	return nil
}
