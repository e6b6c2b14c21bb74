package workers

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// raw is the folder of the workers that have no agent and use none of our code.
const raw = "../../services/agent/examples/nats/"

// startRaw starts such a worker.
func (c *cluster) startRaw(node string, arguments ...string) *worker {
	c.Helper()
	arguments = append([]string{raw + "worker.py", "--node", node, "--url", c.url, "--cluster", "workers", "--pause", "0.03",
		"--steps", itoa(c.steps)}, arguments...)
	w := c.launch(node, exec.Command("python3", arguments...))
	w.pid = w.agent.Process.Pid
	return w
}

func TestWorkersWithoutAnAgentAreCutOffKilledJoinedAndLeftAndLoseNoStep(t *testing.T) {
	c := newCluster(t, 3, 90)
	stays, killed, leaves := c.startRaw("n1"), c.startRaw("n2", "--cut-at", "5"), c.startRaw("n3")
	for _, w := range []*worker{stays, killed, leaves} {
		w.await("the plan after the cut", func(line said) bool { return line.Generation == 2 })
		w.untilWorld(3)
	}
	killed.signal(killed.pid, syscall.SIGKILL)
	t.Logf("after a kill: a step with two after %v", stays.untilWorld(2))

	joins := c.startRaw("n4")
	t.Logf("after a join: a step with three after %v", joins.untilWorld(3))

	leaves.signal(leaves.pid, syscall.SIGTERM)
	leaves.await("its end", func(line said) bool { return line.Ended == "left" })
	t.Logf("after a leave: a step with two after %v", joins.untilWorld(2))

	c.expectTheDigestOfTrainingAlone(stays, joins)
}

func TestWorkersWithoutAnAgentGoOnWhereNATSWasAway(t *testing.T) {
	c := newCluster(t, 2, 40)
	first, second := c.startRaw("n1"), c.startRaw("n2")
	first.untilWorld(2)
	second.untilWorld(2)
	c.restartNATS()
	began := time.Now()
	for _, w := range []*worker{first, second} {
		w.await("a plan for what it claims", func(line said) bool { return line.Generation > 1 && line.Resumes > 0 })
	}
	t.Logf("a plan for all after %v", time.Since(began))
	c.expectTheDigestOfTrainingAlone(first, second)
}

// expectTheDigestOfTrainingAlone waits for workers' last step.
func (c *cluster) expectTheDigestOfTrainingAlone(workers ...*worker) {
	c.Helper()
	alone, err := exec.Command("python3", raw+"perceptron.py", itoa(c.steps)).Output()
	if err != nil {
		c.Fatal(err)
	}
	for _, w := range workers {
		if digest := w.finish(); digest != strings.TrimSpace(string(alone)) {
			c.Errorf("%s ended with %s: expected %s, as training alone does", w.node, digest, alone)
		}
	}
}

func TestAWorkerWithoutAnAgentReadsDataThatTravelsApart(t *testing.T) {
	c := newCluster(t, 2, 1) // there is no second
	w := c.startRaw("n1")
	joined := w.await("its request", func(line said) bool { return line.Incarnation != "" })
	conn, err := nats.Connect(c.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := conn.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	payloads, err := stream.ObjectStore("REKNIT_PAYLOADS")
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(map[string]string{"node": "n1", "refused": "join", "incarnation": joined.Incarnation,
		"reason": "too long to travel in an event", "unknown": strings.Repeat("-", 300<<10)})
	if err != nil {
		t.Fatal(err)
	}
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256(data))
	if _, err := payloads.PutBytes(digest, data); err != nil {
		t.Fatal(err)
	}
	event := fmt.Sprintf(`{"specversion":"1.0","id":"apart","source":"/negotiator","type":"io.reknit.membership.refused.v1",`+
		`"subject":"n1","cluster":"workers","dataref":%q}`, digest)
	if _, err := stream.Publish("reknit.event.workers.membership.refused.n1", []byte(event)); err != nil {
		t.Fatal(err)
	}
	w.await("its end", func(line said) bool { return line.Ended == "join refused: too long to travel in an event" })
}
