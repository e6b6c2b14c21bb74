package agentd

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
)

// A job's pods were one node: their names differ behind the 48th character.
func TestHostsOfDifferentNamesAreDifferentNodes(t *testing.T) {
	job := "pytorchjob-llama-70b-pretraining-2026-11-28-run-7-worker-"
	hosts := []string{job + "0", job + "1", "x" + job + "0", "node_1", "node 1", "node-1", "nöde", "n--de", strings.Repeat("a", 63), strings.Repeat("a", 64)}
	seen := map[string]string{}
	for _, host := range hosts {
		word := wordOf(host)
		if before, is := seen[word]; is {
			t.Errorf("%q and %q are both %s", before, host, word)
		}
		if node := fmt.Sprintf("%s-%d-%x", word, 1<<22, uint32(1<<32-1)); !events.Token(node) {
			t.Errorf("%q makes the id %s, which is none", host, node)
		}
		seen[word] = host
	}
}

func TestANameThatFitsIsItsId(t *testing.T) {
	for host, word := range map[string]string{
		"n1": "n1", "ip-10-0-12-31.eu-central-1.compute.internal": "ip-10-0-12-31-eu-central-1-compute-internal", "": "",
	} {
		if got := wordOf(host); got != word {
			t.Errorf("%q is %q, expected %q", host, got, word)
		}
	}
	if got := wordOf("pytorchjob-llama-70b-pretraining-2026-11-28-run-7-worker-12"); !strings.HasPrefix(got, "pytorchjob-ll") ||
		!strings.HasSuffix(got, "-run-7-worker-12") {
		t.Errorf("a long name is %q: expected its beginning, and the end that tells the pod", got)
	}
}

// A script as hydra starts it changes its directory before it joins.
func TestPathsThatTheTrainerIsToldAreWhole(t *testing.T) {
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	config := Config{Socket: "agent.sock", StateDir: "st", Listen: "127.0.0.1:0"}
	if err := config.complete(); err != nil && !strings.Contains(err.Error(), "REKNIT_SNAPSHOT") {
		t.Fatal(err)
	}
	if config.Socket != filepath.Join(here, "agent.sock") || config.StateDir != filepath.Join(here, "st") {
		t.Errorf("told are %q and %q", config.Socket, config.StateDir)
	}
}
