package agent

import (
	"context"
	"errors"
	"os/exec"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
)

// kernel is a state of a trainer that is in a step which it cannot interrupt.
type kernel struct {
	replica
	frozen bool // what it holds can be told meanwhile
}

func (k *kernel) Freeze() ([]events.Holding, bool) {
	return []events.Holding{{Units: events.Range{End: 1}, Steps: []uint64{1, 0}}}, k.frozen
}

// inStep returns a hub and its only member, whose trainer is in its first step, with the context of that.
func inStep(t *testing.T, state State) (*hub, events.Member, context.Context) {
	t.Helper()
	h := newHub(t)
	member := h.join("n1")
	plan := replicas(1, "", []events.Member{member}, "n1")
	h.say(events.PlanCommitted, "1", &plan)
	orders, err := h.sessions[0].Boundary(t.Context(), 0, state)
	if err != nil {
		t.Fatal(err)
	}
	return h, member, orders.Step
}

// giveUp opens a negotiation for which all give up their step.
func (h *hub) giveUp(member events.Member) {
	h.t.Helper()
	h.say(events.NegotiationOpened, "g2", &events.Opening{
		Negotiation: "g2", Generation: 2, Members: []events.Member{member}, Abandon: true,
		Changes: []events.Change{{Kind: events.ChangeFailure, Node: "n9", Cause: "x"}},
	})
}

func TestASessionConsentsForATrainerThatCannotInterruptItsStep(t *testing.T) {
	h, member, step := inStep(t, &kernel{frozen: true})
	h.giveUp(member)
	consent := await[events.Consent](h, events.Consented)
	if len(consent.Holdings) != 1 || len(consent.Holdings[0].Steps) != 2 || step.Err() == nil {
		t.Errorf("it consents with %+v, and the step's context has ended with %v", consent, step.Err())
	}
}

func TestASessionSaysWithinSecondsThatItsConsentComesLaterThoughTheTrainerIsInItsStep(t *testing.T) {
	h, member, _ := inStep(t, &kernel{})
	began := time.Now()
	h.giveUp(member)
	delay := await[events.Delay](h, events.ConsentDelayed)
	if took := time.Since(began); took < tellsSoon || delay.Seconds == 0 {
		t.Errorf("said after %v: %+v", took, delay)
	}
}

func TestATrainerForWhichTheOthersWaitIsNamedInTheLogOfItsAgent(t *testing.T) {
	log := recorded(t)
	h, member, _ := inStep(t, &kernel{})
	h.speaker.Source = "/monitor"
	h.say(events.StepDelayed, "n1", &events.StepDelay{Node: "n1", Incarnation: member.Incarnation, Generation: 1, By: "n2",
		Phase: events.PhaseBetween, Reason: "n2 has waited for it for 2.1 s"})
	log.expect(t, 1, `msg="the others wait for this trainer: it hangs, or does something else in its step" node=n1 step=0 reason="n2 has waited`)
}

func TestASessionTellsOfABrokenStepAndItsBoundaryWaitsForThePlanThatFollows(t *testing.T) {
	state := &kernel{}
	h, member, _ := inStep(t, state)
	h.sessions[0].Broken("all-reduce timed out")
	broken := await[events.BrokenStep](h, events.StepBroken)
	if broken.Generation != 1 || broken.Step != 0 || broken.Incarnation != member.Incarnation ||
		broken.Reason != "all-reduce timed out" {
		t.Errorf("said %+v", broken)
	}
	again := make(chan Orders, 1)
	go func() {
		orders, err := h.sessions[0].Boundary(t.Context(), 0, state)
		if err == nil {
			again <- orders
		}
	}()
	h.giveUp(member)
	await[events.Consent](h, events.Consented)
	select {
	case <-again:
		t.Fatal("it goes on before the plan")
	default:
	}
	first := replicas(1, "", []events.Member{member}, "n1")
	parent := events.Digest(h.speaker.First(time.Now(), "1", events.PlanCommitted, "1", &first).Data)
	plan := replicas(2, parent, []events.Member{member}, "n1")
	h.say(events.PlanCommitted, "2", &plan)
	select {
	case orders := <-again:
		if orders.Plan.Generation != 2 || !orders.Switched {
			t.Errorf("it goes on with %+v", orders)
		}
	case <-time.After(patience):
		t.Fatal("it does not go on with the plan")
	}
}

// A parent learns of the end of a process from the kernel. Nobody else need notice.
func TestTheParentOfATrainerTellsOfItsEndAndHeartbeatsEnd(t *testing.T) {
	h, member, _ := inStep(t, &kernel{})
	trainer := exec.Command("false")
	if err := trainer.Run(); err == nil {
		t.Fatal("false succeeds")
	}
	if err := h.sessions[0].Exited(t.Context(), "exit status 1", trainer.ProcessState.ExitCode()); err != nil {
		t.Fatal(err)
	}
	exit := await[events.Exit](h, events.NodeExited)
	if exit.Incarnation != member.Incarnation || exit.Generation != 1 || exit.ExitCode == nil || *exit.ExitCode != 1 ||
		exit.Expected {
		t.Errorf("said %+v", exit)
	}
	if _, err := h.sessions[0].Boundary(t.Context(), 0, &kernel{}); err == nil || errors.Is(err, ErrLeft) {
		t.Errorf("Boundary: expected an error that names the end, got %v", err)
	}
	pulses := make(chan *nats.Msg, 1)
	if _, err := h.bus.Conn().ChanSubscribe(events.PulseSubject("c", "n1"), pulses); err != nil {
		t.Fatal(err)
	}
	if err := h.bus.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-pulses:
		t.Error("it sends heartbeats still")
	case <-time.After(3 * h.sessions[0].config.PulseEvery):
	}
	h.sessions[0].Close()
	if again := h.join("n1"); again.Incarnation == member.Incarnation {
		t.Error("a trainer that is started again is the same process")
	}
}
