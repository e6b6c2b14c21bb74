package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
)

// slow is a state that takes its time to adopt: a real trainer loads its units into its accelerators and opens its
// communicators there. It is not done before the test says so.
type slow struct {
	replica
	begun, done chan struct{}
}

func (s *slow) Adopt([]events.Range, uint64) error {
	close(s.begun)
	<-s.done
	return nil
}

// Fault 11: the session's lock was held while the trainer's state adopted, so that a node was taken for lost.
func TestHeartbeatsProbesAndAnswersGoOnWhileTheStateAdopts(t *testing.T) {
	h := newHub(t)
	members := []events.Member{h.join("n1")}
	state := &slow{begun: make(chan struct{}), done: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := h.sessions[0].Boundary(ctx, 0, state)
		ended <- err
	}()
	t.Cleanup(cancel)
	plan := replicas(1, "", members, "n1")
	h.say(events.PlanCommitted, "1", &plan)
	select {
	case <-state.begun:
	case <-time.After(patience):
		t.Fatal("the state does not adopt")
	}
	pulses := make(chan *nats.Msg, 64)
	if _, err := h.bus.Conn().ChanSubscribe(events.PulseSubject("c", "n1"), pulses); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		select {
		case <-pulses:
		case <-time.After(patience):
			t.Fatal("no heartbeat")
		}
	}
	probe, err := json.Marshal(events.Probe{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.bus.Conn().Request(events.ProbeSubject("c", "n1"), probe, patience); err != nil {
		t.Errorf("a probe is not answered: %v", err)
	}
	h.say(events.NegotiationOpened, "g2", &events.Opening{
		Negotiation: "g2", Generation: 2, Members: members,
		Changes: []events.Change{{Kind: events.ChangeJoin, Node: "n2", Cause: "x"}},
	})
	if consent := await[events.Consent](h, events.Consented); !consent.Accepted || len(consent.Holdings) != 1 {
		t.Errorf("it consents with %+v: expected the unit that it adopts", consent)
	}
	close(state.done)
	if err := <-ended; err != nil {
		t.Errorf("Boundary: %v", err)
	}
}

func TestHeartbeatsGoOnWhereTheLossIsNoNumberAndSaySo(t *testing.T) {
	h := newHub(t)
	h.join("n1")
	pulses := make(chan *nats.Msg, 64)
	if _, err := h.bus.Conn().ChanSubscribe(events.PulseSubject("c", "n1"), pulses); err != nil {
		t.Fatal(err)
	}
	for _, loss := range []float64{math.NaN(), math.Inf(1)} {
		h.sessions[0].Report(7, 1, loss)
		h.sessions[0].sendPulse()
	}
	for deadline := time.After(patience); ; {
		var pulse events.Pulse
		select {
		case message := <-pulses:
			if err := json.Unmarshal(message.Data, &pulse); err != nil {
				t.Fatal(err)
			}
		case <-deadline:
			t.Fatal("no heartbeat of the step")
		}
		if pulse.Step == 7 {
			if pulse.Loss != 0 || !pulse.LossNotFinite || pulse.LossNotFiniteSince != 7 {
				t.Errorf("it tells the loss %v, not finite: %v, since step %d", pulse.Loss, pulse.LossNotFinite, pulse.LossNotFiniteSince)
			}
			if pulse.StillSeconds <= 0 {
				t.Errorf("it tells %v s since its last step", pulse.StillSeconds)
			}
			return
		}
	}
}

// A heartbeat that is not valid is refused, and the node would look dead.
func TestANodeWhosePeersAllFailAtOnceTellsOfEachInHeartbeatsThatAreValid(t *testing.T) {
	h := newHub(t)
	h.join("n1")
	pulses := make(chan *nats.Msg, 1024)
	_, err := h.bus.Conn().ChanSubscribe(events.PulseSubject("c", "n1"), pulses)
	if err := errors.Join(err, h.bus.Conn().Flush()); err != nil {
		t.Fatal(err)
	}
	session, told, twice := h.sessions[0], map[string]bool{}, map[string]bool{}
	session.mutex.Lock() // no heartbeat goes out before all have failed
	for i := range 3 * events.MostSuspicions {
		peer := fmt.Sprintf("peer%d", i)
		session.pulses.suspicions[peer] = &suspicion{Suspicion: events.Suspicion{Node: peer, Reason: "silent"}}
	}
	session.mutex.Unlock()
	session.Suspect("last", true, strings.Repeat("é", 4096))
	for deadline := time.After(patience); len(twice) < 3*events.MostSuspicions+1; {
		var pulse events.Pulse
		select {
		case message := <-pulses:
			if err := json.Unmarshal(message.Data, &pulse); err != nil {
				t.Fatal(err)
			}
		case <-deadline:
			t.Fatalf("%d peers told of, %d twice", len(told), len(twice))
		}
		if err := pulse.Validate(); err != nil {
			t.Fatal(err)
		}
		for _, suspicion := range pulse.Suspicions {
			if told[suspicion.Node] {
				twice[suspicion.Node] = true // for one heartbeat may be lost
			}
			told[suspicion.Node] = true
		}
	}
}

// keeper is a state that holds layer 0 at one step.
type keeper struct {
	replica
	forgot bool
}

func (k *keeper) Holdings() []events.Holding {
	if k.forgot {
		return nil
	}
	return []events.Holding{{Units: events.Range{End: 1}, Steps: []uint64{7}}}
}

func (k *keeper) Forget() { k.forgot = true }

// Fault 1: a node that was given up while it lived said that it holds nothing.
func TestANodeThatIsGivenUpClaimsTheBytesThatItHoldsUnlessItWentAstray(t *testing.T) {
	for name, astray := range map[string]bool{"given up": false, "astray": true} {
		t.Run(name, func(t *testing.T) {
			h := newHub(t)
			members := []events.Member{h.join("n1")}
			state := &keeper{replica: replica{shelfOf: shelfOf{layer: []byte("layer6")}}}
			h.trainOn(h.sessions[0], &state.replica, state)
			plan := replicas(1, "", members, "n1")
			h.say(events.PlanCommitted, "1", &plan)
			waitFor(t, "it trains", h.sessions[0].trained)
			h.say(events.MembershipRefused, "n1", &events.Refusal{
				Node: "n1", Incarnation: members[0].Incarnation, Refused: events.RefusedMembership, Reason: "lost", Astray: astray,
			})
			members[0].Incarnation = await[events.Join](h, events.JoinRequested).Incarnation
			h.say(events.NegotiationOpened, "g2", &events.Opening{
				Negotiation: "g2", Generation: 2, Members: members, Abandon: true,
				Changes: []events.Change{{Kind: events.ChangeFailure, Node: "n1", Cause: "x"}},
			})
			consent := await[events.Consent](h, events.Consented)
			if len(consent.Holdings) > 0 {
				t.Errorf("it says that it holds %+v", consent.Holdings)
			}
			switch {
			case astray && (len(consent.Claims) > 0 || !state.forgot):
				t.Errorf("it claims %+v, forgot: %t", consent.Claims, state.forgot)
			case !astray && (len(consent.Claims) != 1 || consent.Trained != 1 || consent.Claims[0].Step != 7):
				t.Errorf("it claims %+v of plan %d", consent.Claims, consent.Trained)
			}
		})
	}
}
