package agentd

import (
	"strings"
	"testing"
)

func TestTheScriptOfACommandIsThePythonFileThatItRuns(t *testing.T) {
	for command, expected := range map[string]string{
		"python -u /home/a/train.py --config node1.yaml":      "train.py",
		"accelerate launch --config_file node0.yaml train.py": "train.py",
		"python -m train last.py":                             "",
		"./train --config node1.yaml":                         "",
	} {
		if script := scriptOf(strings.Fields(command)); script != expected {
			t.Errorf("%s: expected %q, got %q", command, expected, script)
		}
	}
}
