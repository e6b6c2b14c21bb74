package agentd

import (
	"os/exec"
	"testing"
)

func TestAKillInsideAShellIsNoFaultOfTheScript(t *testing.T) {
	for script, code := range map[string]int{
		"kill -9 $$": -1, "exit 137": -1, "exit 143": -1, "exit 130": -1, // killed, or a shell whose script was
		"kill -SEGV $$": 139, "exit 139": 139, "exit 134": 134, "exit 1": 1, "exit 0": 0, "exit 255": 255,
	} {
		command := exec.Command("sh", "-c", script)
		_ = command.Run()
		if got := (end{state: command.ProcessState}).code(); got != code {
			t.Errorf("%s: code %d, expected %d", script, got, code)
		}
	}
}
