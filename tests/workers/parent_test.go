package workers

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

func TestATrainerThatIsStoppedWhileItWaitsForAnOrderJoinsAgainWithoutARestart(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, 100)
	stops := c.start("n1", "--restarts", "0")
	stops.signal(stops.pid, syscall.SIGSTOP) // there is no plan without another node
	c.awaitEvent(events.NodeExited, func(event events.Event) bool { return event.Subject == "n1" })
	stops.signal(stops.pid, syscall.SIGCONT)
	c.expectTheEndOfTrainingAlone(stops, c.start("n2"))
}

func TestWhatTheTrainerStartedEndsSoonAfterTheAgentWasKilled(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, endless)
	// The shell is the trainer for the agent, and who waits for another agent does not end.
	c.script = []string{"sh", "-c", `python3 -c "import sys; sys.path.insert(0, '../../services/agent/python'); import reknit, worker
reknit._WAIT_SECONDS = 3600
worker.main()"; true`}
	w := c.start("n1")
	w.untilWorld(1)
	w.signal(w.agent.Process.Pid, syscall.SIGKILL)
	w.untilItsEnd()
}

func TestATrainerWhoseJoinWouldBeRefusedAgainIsNotStartedAgain(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, endless)
	c.start("n1").untilWorld(1)
	for _, join := range []string{"units=[0], batch=1", "units=[8], batch=4, micro_batch=3", "units=[8], batch=1, digest='another job'"} {
		c.script = []string{"python3", "-c", "import json, os, sys; sys.path.insert(0, '../../services/agent/python'); import reknit; " +
			"print(json.dumps({'pid': os.getpid()}), flush=True); next(reknit.join(" + join + ").steps())"}
		starts := 1
		for line := range c.start("n2").lines {
			if line.PID > 0 {
				starts++
			}
		}
		if starts > 1 {
			t.Errorf("%s: it was started %d times", join, starts)
		}
	}
}

func TestWhoMayNotLeaveIsToldWhatEndsIt(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, endless)
	said := c.pipeErrors()
	w := c.start("n1")
	w.untilWorld(1)
	w.signal(w.agent.Process.Pid, syscall.SIGTERM)
	c.hear(said, "A second signal within 10s ends it at once", "Two signals within 10s end it anyway")
	time.Sleep(10 * time.Second) // no longer is the next signal the second one
	w.signal(w.agent.Process.Pid, syscall.SIGTERM)
	c.hear(said, "A second signal within 10s ends it at once")
	w.signal(w.agent.Process.Pid, syscall.SIGTERM)
	w.untilItsEnd()
	exit := c.awaitEvent(events.NodeExited, func(events.Event) bool { return true })
	if told, err := events.Open[events.Exit](exit); err != nil || told.Keeps {
		t.Errorf("the cluster is told %+v, %v: expected that the agent keeps nothing", told, err)
	}
}

// Its agent ended without a word, and the model with it.
func TestOneSignalWhileTheScriptOfALoneNodeIsStartedAgainLosesNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 150)
	heard := c.pipeErrors()
	w := c.start("n1")
	reached := w.await("steps", func(line said) bool { return line.Done >= 50 }).Done
	w.signal(w.pid, syscall.SIGKILL)
	c.hear(heard, "it is started again")
	w.signal(w.agent.Process.Pid, syscall.SIGINT)
	c.hear(heard, "A second signal within 10s ends both")
	w.await("its next start", func(line said) bool { return line.PID > 0 })
	if adopted := *w.adopts().Adopted; adopted < reached-1 {
		t.Errorf("it goes on at step %d, and was at %d", adopted, reached)
	}
	c.expectTheEndOfTrainingAlone(w)
}

// It was killed after a second, in the middle of its file.
func TestASecondSignalHasTheOthersGoOnAtOnceAndTheScriptSaveItsFile(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, endless)
	said := c.pipeErrors()
	saved := filepath.Join(t.TempDir(), "saved")
	c.script = []string{"python3", "-c", `import os, signal, sys, time
import worker
def save(*_):
    time.sleep(4)
    open(sys.argv[1], "w").close()
    os._exit(3)
signal.signal(signal.SIGTERM, save)
worker.main()`, saved}
	w := c.start("n1")
	w.untilWorld(1)
	w.signal(w.agent.Process.Pid, syscall.SIGTERM)
	c.hear(said, "A second signal within 10s ends it at once", "Two signals within 10s end it anyway")
	w.signal(w.agent.Process.Pid, syscall.SIGTERM)
	c.hear(said, "it has 30s to save")
	c.awaitEvent(events.NodeExited, func(events.Event) bool { return true })
	if _, err := os.Stat(saved); err == nil {
		t.Error("the others waited until it had saved")
	}
	w.untilItsEnd()
	if _, err := os.Stat(saved); err != nil {
		t.Errorf("it has not saved: %v", err)
	}
}

// pipeErrors has what agents log go into a pipe.
func (c *cluster) pipeErrors() (said *os.File) {
	c.Helper()
	said, errors, err := os.Pipe()
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() { errors.Close() })
	c.errors = errors
	return said
}

// hear waits until a pipe says all that is expected, in this order.
func (c *cluster) hear(said *os.File, expected ...string) {
	c.Helper()
	if err := said.SetReadDeadline(time.Now().Add(patience)); err != nil {
		c.Fatal(err)
	}
	lines := bufio.NewScanner(said)
	for len(expected) > 0 && lines.Scan() {
		if strings.Contains(lines.Text(), expected[0]) {
			expected = expected[1:]
		}
	}
	if len(expected) > 0 {
		c.Errorf("it is not told %q: %v", expected, lines.Err())
	}
}

func TestATrainerThatReadsFromTheTerminalEndsAndDoesNotStandStill(t *testing.T) {
	t.Parallel()
	if program == "" {
		t.Skip("python3 is not installed")
	}
	inTerminal := exec.Command("python3", "-c", "import pty, sys; pty.spawn(sys.argv[1:])",
		program, "agent", "run", "--restarts", "0", "--", "python3", "-c", "breakpoint(); input()")
	inTerminal.Env = append(os.Environ(), "REKNIT_NATS_URL=nats://127.0.0.1:1") // it takes no part
	if err := inTerminal.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- inTerminal.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		_ = inTerminal.Process.Kill() // the terminal goes with it, and who is stopped there
		t.Fatal("it stands still")
	}
}
