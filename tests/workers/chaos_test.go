package workers

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// The papers' code, on processes that join and leave: one is asked to go by Ctrl-C to its agent, one by reknit drain.
func TestTheListingsOfChaosTrainThroughAJoinAndALeave(t *testing.T) {
	t.Parallel()
	for _, listing := range []string{"chaos_wan.py", "chaos_edge.py"} {
		t.Run(strings.TrimSuffix(listing, ".py"), func(t *testing.T) {
			t.Parallel()
			c := newPerceptron(t, 2, 300, "WORKER_DOUBLE=1")
			c.script[1] = listing
			loaded := filepath.Join(t.TempDir(), "loaded")
			n3 := c.startWith("n3", []string{"WORKER_LOADS_UNTIL=" + loaded})
			n1, n2 := c.start("n1"), c.start("n2")
			n2.untilWorld(2)
			touch(t, loaded)
			n3.untilWorld(3)
			n1.untilWorld(3)
			n2.signal(n2.agent.Process.Pid, syscall.SIGINT) // the terminal's Ctrl-C
			n2.untilItsEnd()
			n1.untilWorld(2)
			n3.untilWorld(2)
			n1.finish()
			n3.finish()
			c.expectTheLossesOfTrainingAlone(c.ledger.losses)
			if err := c.ledger.check(c.plans(), 300); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAnExitEventIsCapturedWhenAUserDrainsTheNode(t *testing.T) {
	t.Parallel()
	c := newPerceptron(t, 2, 2000)
	c.script[1] = "chaos_edge.py"
	n1, n2 := c.start("n1"), c.start("n2")
	n1.untilWorld(2)
	c.reknit("drain", "n2", "--reason", "its rack is moved")
	if event := n2.await("an exit event", isExitEvent); event.ExitEvent != "its rack is moved" {
		t.Errorf("the exit event is %q, want the reason that the user gave", event.ExitEvent)
	}
	n2.untilItsEnd()
	n1.untilWorld(1)
}

func isExitEvent(line said) bool { return line.ExitEvent != "" }

// The cluster refuses that the last node leaves. Its script asked again for good, of which each time was told to it anew.
func TestOneSignalAtTheLastNodeIsOneExitEvent(t *testing.T) {
	t.Parallel()
	c := newPerceptron(t, 1, 2000)
	c.script[1] = "chaos_edge.py"
	last := c.start("n1")
	last.untilWorld(1)
	last.signal(last.agent.Process.Pid, syscall.SIGINT)
	event := last.await("an exit event", isExitEvent)
	for until := last.done + 50; last.done < until; {
		if line := last.await("a step", func(said) bool { return true }); isExitEvent(line) {
			t.Fatalf("exit event %q after %q, of one signal", line.ExitEvent, event.ExitEvent)
		}
	}
}

func TestANodeIsSeenFromItsCoordinatorOnAndNotOnlyOnceItHasAModel(t *testing.T) {
	t.Parallel()
	c := newPerceptron(t, 1, 2000)
	c.script[1] = "chaos_wan.py"
	loaded := filepath.Join(t.TempDir(), "loaded")
	c.start("n1").untilWorld(1)
	n2 := c.startWith("n2", []string{"WORKER_LOADS_UNTIL=" + loaded})
	if nodes := c.reknit("nodes"); !strings.Contains(nodes, "n2 is starting: its script runs, and has given no state yet") {
		t.Errorf("n2 loads its data, and reknit nodes says\n%s", nodes)
	}
	touch(t, loaded)
	n2.untilWorld(2)
	if nodes := c.reknit("nodes"); strings.Contains(nodes, "starting") {
		t.Errorf("n2 trains, and reknit nodes says\n%s", nodes)
	}
}

// touch makes a file for which a worker waits.
func touch(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// reknit runs a command of reknit on the cluster, and returns what it says.
func (c *cluster) reknit(arguments ...string) string {
	c.Helper()
	output, err := c.run(arguments...)
	if err != nil {
		c.Fatalf("reknit %s: %v: %s", strings.Join(arguments, " "), err, output)
	}
	return output
}

// run runs a command of the program.
func (c *cluster) run(arguments ...string) (output string, err error) {
	ctx, cancel := context.WithTimeout(c.Context(), patience)
	defer cancel()
	command := exec.CommandContext(ctx, program, append(arguments, "--nats", c.url, "--cluster", "workers")...)
	printed, err := command.CombinedOutput()
	return string(printed), err
}
