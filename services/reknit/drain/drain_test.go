package drain

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/internal/scene"
	"github.com/reknit/reknit/services/reknit/tell"
	"github.com/reknit/reknit/shared/bus"
)

// house is a cluster of n1 and n2, whose negotiator is the test.
type house struct {
	t    *testing.T
	bus  *bus.Bus
	url  string
	said int
}

func newHouse(t *testing.T) *house {
	t.Helper()
	b, url := scene.Begin(t, "c")
	h := &house{t: t, bus: b, url: url}
	h.commit(1, "n1", "n2")
	return h
}

func (h *house) say(kind events.Kind, source, subject string, payload events.Payload) {
	h.said++
	event := events.Speaker{Source: source, Cluster: "c"}.First(time.Now(), fmt.Sprint(h.said), kind, subject, payload)
	if _, err := h.bus.Publish(h.t.Context(), event); err != nil {
		h.t.Errorf("%s: %v", kind, err)
	}
}

// commit brings a generation about.
func (h *house) commit(generation uint64, nodes ...string) {
	negotiation := fmt.Sprint("g", generation)
	plan := events.Plan{
		Cluster: "c", Generation: generation, Parent: "p", Policy: "repipeline", Data: events.Data{GlobalBatch: 1, MicroBatch: 1},
		Pipelines: []events.Pipeline{{MicroBatches: 1}},
	}
	for i, node := range nodes {
		plan.Nodes = append(plan.Nodes, events.Member{Node: node, Incarnation: "i", Address: "a"})
		plan.Pipelines[0].Stages = append(plan.Pipelines[0].Stages, events.Stage{Node: node, Layers: events.Range{First: i, End: i + 1}})
	}
	h.say(events.NegotiationOpened, "/negotiator", negotiation, &events.Opening{Negotiation: negotiation, Generation: generation,
		Changes: []events.Change{{Kind: events.ChangeLeave, Node: "n2"}}, Members: plan.Nodes})
	h.say(events.RestorationPlanned, "/restorer", negotiation, &events.Restoration{Negotiation: negotiation, Plan: plan})
	h.say(events.PlanCommitted, "/negotiator", fmt.Sprint(generation), &plan)
	h.say(events.Committed, "/negotiator", negotiation,
		&events.Commitment{Negotiation: negotiation, Generation: generation, PlanDigest: events.Digest(nil)})
	for _, node := range nodes {
		h.say(events.PlanActivated, "/node/"+node, node, &events.Activation{Node: node, Generation: generation, Step: 1})
	}
}

// drain runs the command while answer does what a negotiator does with the request that it hears.
func (h *house) drain(answer func(events.Leave), arguments ...string) (printed string, err error) {
	h.t.Helper()
	return h.run(Command(), arguments, events.LeaveRequested, func(event events.Event) error {
		leave, err := events.Open[events.Leave](event)
		answer(leave)
		return err
	})
}

// run runs a command while a negotiator answers what it asks for.
func (h *house) run(
	command *cobra.Command, arguments []string, asked events.Kind, answer func(events.Event) error,
) (printed string, err error) {
	h.t.Helper()
	subject := events.EventSubject("c", asked, "*")
	var answering sync.WaitGroup
	end, err := h.bus.Follow(h.t.Context(), events.EventStream, []string{subject}, bus.New, func(event events.Event) {
		answering.Add(1)
		defer answering.Done()
		if err := answer(event); err != nil || event.Source != "/user" {
			h.t.Errorf("%s asks, %v", event.Source, err)
		}
	})
	if err != nil {
		h.t.Fatal(err)
	}
	defer end()
	var output strings.Builder
	command.SetArgs(append(arguments, "--nats", h.url, "--cluster", "c"))
	command.SetOut(&output)
	ctx, cancel := context.WithTimeout(h.t.Context(), 2*time.Minute)
	defer cancel()
	err = command.ExecuteContext(ctx)
	answering.Wait() // the command may hear the answer before who gives it hears that it is stored
	return output.String(), err
}

func TestANodeIsDrainedOnceAllOthersWorkWithoutIt(t *testing.T) {
	h := newHouse(t)
	var asked events.Leave
	printed, err := h.drain(func(leave events.Leave) {
		asked = leave
		h.commit(2, "n1", "n2") // another change comes first
		h.commit(3, "n1")
	}, "n2", "--deadline", "2m", "--reason", "a new disk")
	if err != nil || !strings.Contains(printed, "generation 3  all trainers work under it") {
		t.Errorf("%v, %s", err, printed)
	}
	if asked.Node != "n2" || asked.Reason != "a new disk" || asked.DeadlineSeconds != 120 {
		t.Errorf("it asked for %+v", asked)
	}
}

func TestANodeThatMayNotLeaveIsToldWithTheReason(t *testing.T) {
	h := newHouse(t)
	refuse := func(node, reason string) {
		h.say(events.MembershipRefused, "/negotiator", node, &events.Refusal{Node: node, Refused: events.ChangeLeave, Reason: reason})
	}
	_, err := h.drain(func(events.Leave) {
		refuse("n1", "another one's answer")
		refuse("n2", "nobody else has layer 1")
	}, "n2")
	if err == nil || err.Error() != "n2 may not leave: nobody else has layer 1" {
		t.Errorf("got %v", err)
	}
}

func TestNobodyIsAskedForWhatCannotBe(t *testing.T) {
	h := newHouse(t)
	nobody := func(leave events.Leave) { t.Errorf("%+v was asked for", leave) }
	if _, err := h.drain(nobody, "n9"); err == nil || !strings.HasPrefix(err.Error(), "n9 is no member of generation 1 of c") {
		t.Errorf("n9: %v", err)
	}
	for _, arguments := range [][]string{{}, {"n1", "n2"}, {"a.b"}, {"n2", "--deadline", "-1s"}, {"n2", "--deadline", "2"}} {
		if _, err := h.drain(nobody, arguments...); !errors.As(err, &tell.UsageError{}) {
			t.Errorf("%v: %v, expected a usage error", arguments, err)
		}
	}
}

func TestANodeIsDrainedByItsName(t *testing.T) {
	h, key := newHouse(t), "UA"+strings.Repeat("B", 54)
	job := events.Job{Digest: events.Digest(nil), GlobalBatch: 1, MicroBatch: 1,
		Layers: []events.LayerProfile{{ParameterBytes: 1, OptimizerBytes: 1, ForwardSeconds: 1, BackwardSeconds: 1}}}
	h.say(events.JoinRequested, "/node/"+key, key,
		&events.Join{Node: key, Name: "gpu-1", Incarnation: "i", Address: "a", MemoryBytes: 1, Job: job})
	h.commit(2, "n1", key)
	printed, err := h.drain(func(leave events.Leave) {
		if leave.Node != key {
			t.Errorf("%s is to leave", leave.Node)
		}
		h.commit(3, "n1")
	}, "gpu-1")
	asks := "gpu-1 is asked to leave: the node with the key " + key
	if err != nil || !strings.Contains(printed, "gpu-1: drained") || !strings.Contains(printed, asks) {
		t.Errorf("%v, %s", err, printed)
	}
}
