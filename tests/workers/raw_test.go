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

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
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
	t.Parallel()
	c := newCluster(t, 3, 250)
	stays, killed, leaves := c.startRaw("n1"), c.startRaw("n2", "--cut-at", "5"), c.startRaw("n3")
	for _, w := range []*worker{stays, killed, leaves} {
		w.await("the plan after the cut", func(line said) bool { return line.Generation >= 2 })
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
	t.Parallel()
	c := newCluster(t, 2, 150)
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
	t.Parallel()
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
	payloads, err := stream.ObjectStore("REKNIT_PAYLOADS_workers")
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

func TestAWorkerWithoutAnAgentWhoseWordIsRefusedSaysItAgain(t *testing.T) {
	t.Parallel()
	c := newHub(t, 1)
	conn, err := nats.Connect(c.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := conn.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	log, err := stream.StreamInfo(events.Lane("workers", events.EventStream.Name))
	if err != nil {
		t.Fatal(err)
	}
	full := log.Config
	full.MaxMsgSize = 1
	if _, err := stream.UpdateStream(&full); err != nil {
		t.Fatal(err)
	}
	w := c.startRaw("n1")
	w.await("an error", func(line said) bool { return strings.Contains(line.Hub, "message size exceeds") })
	if _, err := stream.UpdateStream(&log.Config); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if log, err := stream.StreamInfo(events.Lane("workers", events.EventStream.Name)); err == nil && log.State.Msgs > 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("it says nothing")
		}
	}
}

// The logs of events and of plans have no common order.
func TestAWorkerWithoutAnAgentThatLeavesIsGoneWhereTheStepOfItsLeaveIsGivenUpBeforeItHearsThePlan(t *testing.T) {
	t.Parallel()
	c := newHub(t, 9)
	b, err := bus.Connect(t.Context(), bus.Config{URL: c.url, Name: "test", Cluster: "workers"})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	speaker := events.Speaker{Source: "/negotiator", Cluster: "workers"}
	say := func(kind events.Kind, subject string, payload events.Payload) {
		t.Helper()
		if _, err := b.Publish(t.Context(), speaker.First(time.Now(), "test", kind, subject, payload)); err != nil {
			t.Fatal(err)
		}
	}
	w := c.startRaw("n1")
	joined := w.await("its request", func(line said) bool { return line.Incarnation != "" })
	leaves := events.Member{Node: "n1", Incarnation: joined.Incarnation, Address: joined.Address}
	stays := events.Member{Node: "n2", Incarnation: "a", Address: "127.0.0.1:1"}
	plan := func(generation, resumes uint64, members ...events.Member) *events.Plan {
		plan := &events.Plan{
			Cluster: "workers", Generation: generation, Policy: "test", ResumeStep: resumes, Nodes: members,
			Data:      events.Data{GlobalBatch: 24, MicroBatch: 2, ConsumedSamples: 24 * resumes},
			Migration: events.Migration{ShardBytes: 1 << 20}, LearningRateScale: 1,
		}
		if generation > 1 {
			plan.Parent = events.Digest([]byte("the plan before"))
		}
		for n, member := range members {
			share := 24 / len(members)
			plan.Pipelines = append(plan.Pipelines, events.Pipeline{
				MicroBatches: share / 2, Samples: events.Range{First: n * share, End: (n + 1) * share},
				Stages: []events.Stage{{Node: member.Node, Layers: events.Range{First: 0, End: 2}}},
			})
		}
		return plan
	}
	say(events.PlanCommitted, "1", plan(1, 0, leaves, stays))
	w.await("the plan", func(line said) bool { return line.Generation == 1 }) // whose other node is not there: no step ends
	say(events.NegotiationOpened, "g3", &events.Opening{
		Negotiation: "g3", Generation: 3, Abandon: true, Members: []events.Member{stays},
		Changes: []events.Change{{Kind: events.ChangeFailure, Node: "n3"}},
	})
	probe, err := json.Marshal(events.Probe{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Conn().Request(events.ProbeSubject("workers", "n1"), probe, patience); err != nil { // it takes all in order
		t.Fatal(err)
	}
	say(events.PlanCommitted, "2", plan(2, 5, stays))
	w.await("its end", func(line said) bool { return line.Ended == "left" })
}
