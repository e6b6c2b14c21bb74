package world

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// This build, driven over a pipe, stands for an earlier one.
func TestAMachineBehindAPipeDoesAsOneWithoutIt(t *testing.T) {
	program := filepath.Join(t.TempDir(), "driven")
	if out, err := exec.Command("go", "build", "-o", program, "../builds/driven").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for seed := range uint64(6) {
		driven, here := NewScript(seed).Beside(program).Play(false), NewScript(seed).Beside("").Play(false)
		if driven.Trace != here.Trace {
			t.Errorf("seed %d: %v over the pipe, %v without", seed, driven, here)
		}
	}
}
