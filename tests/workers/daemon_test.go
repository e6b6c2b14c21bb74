package workers

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// daemon is an agent that serves trainers which others start.
type daemon struct {
	*cluster
	socket string
	agent  *exec.Cmd
}

func (c *cluster) serve() *daemon {
	c.Helper()
	dir, err := os.MkdirTemp("", "rk-") // a socket's path must be short
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() { os.RemoveAll(dir) })
	d := &daemon{cluster: c, socket: filepath.Join(dir, "agent.sock")}
	c.Cleanup(func() { d.kill() })
	d.begin()
	return d
}

// begin returns when trainers may connect.
func (d *daemon) begin() {
	d.Helper()
	d.agent = exec.Command(program, "agent", "serve")
	d.agent.Env = append(os.Environ(), "REKNIT_NATS_URL="+d.url, "REKNIT_CLUSTER=workers", "REKNIT_AGENT_SOCKET="+d.socket)
	if os.Getenv("REKNIT_TEST_LOG") != "" {
		d.agent.Stderr = os.Stderr
	}
	output, err := d.agent.StdoutPipe()
	if err == nil {
		err = d.agent.Start()
	}
	if err != nil {
		d.Fatal(err)
	}
	if line, err := bufio.NewReader(output).ReadString('\n'); err != nil {
		d.Fatalf("it says %q: %v", line, err)
	}
}

func (d *daemon) kill() {
	_ = d.agent.Process.Kill() // it may have ended
	_ = d.agent.Wait()
}

// start starts a worker that this agent serves.
func (d *daemon) start(node string) *worker {
	d.Helper()
	w := &worker{cluster: d.cluster, node: node, agent: exec.Command("python3", "worker.py"), lines: make(chan said, 1<<16)}
	w.agent.Env = append(os.Environ(), "REKNIT_AGENT="+d.socket, "REKNIT_NODE="+node, "WORKER_STEP_SECONDS=0.01",
		"WORKER_STEPS="+itoa(d.steps))
	output, err := w.agent.StdoutPipe()
	if err == nil {
		err = w.agent.Start()
	}
	if err != nil {
		d.Fatal(err)
	}
	d.Cleanup(w.kill)
	go w.read(output)
	w.pid = w.await("its start", func(line said) bool { return line.PID > 0 }).PID
	return w
}

func TestTrainersGoOnWithTheirStateWhenTheAgentOfAllOfThemIsKilledAndStartedAgain(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, endless)
	d := c.serve()
	first, second := d.start("n1"), d.start("n2")
	first.untilWorld(2)
	second.untilWorld(2)
	d.kill()
	began := time.Now()
	d.begin()
	for _, w := range []*worker{first, second} {
		back := w.await("the plan after", func(line said) bool { return line.Adopted != nil && *line.Adopted > 0 })
		if len(back.Took) != 0 {
			t.Errorf("%s took units %v at step %d: expected none", w.node, back.Took, *back.Adopted)
		}
		w.untilWorld(2)
	}
	t.Logf("a step with both %v after the agent was started", time.Since(began))
	c.expectTheStateOfTrainingAlone(first, second)
}

func TestATrainerEndsWithTheAgentThatIsItsParent(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, endless)
	w := c.start("n1")
	w.untilWorld(1)
	w.signal(w.agent.Process.Pid, syscall.SIGKILL)
	w.untilItsEnd()
}

func TestTheOthersGoOnWhileATrainerWaitsForItsAgent(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, endless)
	d := c.serve()
	waits, other := d.start("n1"), c.start("n2")
	waits.untilWorld(2)
	other.untilWorld(2)
	d.kill()
	t.Logf("a step alone after %v", other.untilWorld(1))
	d.begin()
	t.Logf("a step with both after %v", other.untilWorld(2))
	c.expectTheStateOfTrainingAlone(waits, other)
}
