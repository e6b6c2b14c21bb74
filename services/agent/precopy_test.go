package agent

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

// replica is a trainer's state of layer 0 that each step changes wholly, or of none yet.
type replica struct {
	shelfOf
	step  uint64
	bent  bool          // it applies changes wrongly
	alike bool          // every step changes the same
	large bool          // a change is three times as long as the layer, instead of half
	pause time.Duration // before it applies the first change
}

// change is what a step changes in the layer.
func (r *replica) change(step uint64, bytesOfLayer int) []byte {
	if r.alike {
		step = 0
	}
	if r.large {
		bytesOfLayer *= 6
	}
	return bytes.Repeat([]byte{byte(step)}, bytesOfLayer/2)
}

func (r *replica) Change(_ int, step uint64) ([]byte, error) {
	if step != r.step {
		return nil, fmt.Errorf("step %d: expected %d", step, r.step)
	}
	return r.change(step, len(r.layer)), nil
}

func (r *replica) Apply(_ int, data, change []byte) ([]byte, error) {
	if want := len(r.change(0, len(data))); len(change) != want {
		return nil, fmt.Errorf("change: expected %d bytes, got %d", want, len(change))
	}
	time.Sleep(r.pause)
	r.pause = 0
	next := slices.Clone(data)
	for i := range next {
		next[i] = next[i]*3 + change[i/2]
	}
	if r.bent {
		next[0]++
	}
	return next, nil
}

// at returns a layer after so many steps.
func (r *replica) at(layer []byte, steps uint64) []byte {
	for step := range steps {
		layer, _ = r.Apply(0, layer, r.change(step+1, len(layer)))
	}
	return layer
}

func waitFor(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

func (s *Session) trained() bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.loop.done > 0
}

// trainOn has a node take steps until the test ends; each changes its layer. What is lent to the session is the
// replica, or a state around it.
func (h *hub) trainOn(session *Session, state *replica, around ...State) {
	lent := State(state)
	if len(around) > 0 {
		lent = around[0]
	}
	ctx, cancel := context.WithCancel(h.t.Context())
	var trainer sync.WaitGroup
	trainer.Go(func() {
		for ctx.Err() == nil {
			orders, err := session.Boundary(ctx, state.step, lent)
			if err != nil {
				return
			}
			time.Sleep(h.stepTime)
			if orders.Step.Err() == nil && state.layer != nil {
				state.layer, _ = state.Apply(0, state.layer, state.change(state.step+1, len(state.layer)))
				state.step++
			}
		}
	})
	h.t.Cleanup(func() { cancel(); trainer.Wait() })
}

// replicas is a plan under which each of the nodes trains layer 0.
func replicas(generation uint64, parent string, members []events.Member, nodes ...string) events.Plan {
	plan := events.Plan{
		Cluster: "c", Generation: generation, Parent: parent, Nodes: members,
		Data: events.Data{GlobalBatch: len(nodes), MicroBatch: 1},
	}
	for _, node := range nodes {
		plan.Pipelines = append(plan.Pipelines,
			events.Pipeline{MicroBatches: 1, Stages: []events.Stage{{Node: node, Layers: events.Range{End: 1}}}})
	}
	return plan
}

// startJoin has n3 pre-copy from n1 and n2, which train, and returns the plan by which it will train beside them.
func (h *hub) startJoin(layer []byte, joiner *replica, alter ...func([]events.Member)) events.Plan {
	h.t.Helper()
	var members []events.Member
	for _, node := range []string{"n1", "n2", "n3"} {
		members = append(members, h.join(node))
	}
	for _, alter := range alter {
		alter(members)
	}
	first := replicas(1, "", members, "n1", "n2")
	h.say(events.PlanCommitted, "1", &first)
	for i := range 2 {
		h.trainOn(h.sessions[i], &replica{shelfOf: shelfOf{layer: slices.Clone(layer)}, alike: joiner.alike,
			large: joiner.large})
	}
	if !h.late {
		h.trainOn(h.sessions[2], joiner)
	}
	waitFor(h.t, "both train", func() bool { return h.sessions[0].trained() && h.sessions[1].trained() })
	second := replicas(2, events.Digest(nil), members, "n1", "n2", "n3")
	half := len(layer) >> 21
	second.Migration = events.Migration{ShardBytes: 1 << 20, Transfers: []events.Transfer{{Unit: 0, To: "n3", Bytes: int64(len(layer)), Sources: []events.Source{
		{Node: "n1", Shards: events.Range{End: half}}, {Node: "n2", Shards: events.Range{First: half, End: 2 * half}},
	}}}}
	h.say(events.NegotiationOpened, "g2", &events.Opening{
		Negotiation: "g2", Generation: 2, Members: members, Changes: []events.Change{{Kind: events.ChangeJoin, Node: "n3"}},
	})
	h.say(events.PreCopyStarted, "g2", &events.PreCopyStart{Negotiation: "g2", Plan: second})
	return second
}

// stopAll ends it as the negotiator does, and returns where all stopped.
func (h *hub) stopAll(plan events.Plan) (stop uint64, receipt events.Receipt) {
	h.t.Helper()
	h.say(events.Prepared, "g2", &events.Preparation{Negotiation: "g2", Generation: 2})
	promised := map[string]uint64{}
	for promised["n1"] == 0 || promised["n2"] == 0 {
		promise := await[events.Promise](h, events.Promised)
		promised[promise.Node] = promise.StopStep
		stop = max(stop, promise.StopStep)
	}
	plan.ResumeStep = stop
	h.say(events.Scheduled, "g2", &events.Schedule{Negotiation: "g2", StopStep: stop, Plan: plan})
	return stop, await[events.Receipt](h, events.ShardReceived)
}

// scaleOut is both; said is what n3 says of how far it came.
func (h *hub) scaleOut(layer []byte, joiner *replica, alter ...func([]events.Member)) (stop uint64, said events.CaughtUp, receipt events.Receipt) {
	h.t.Helper()
	plan := h.startJoin(layer, joiner, alter...)
	said = await[events.CaughtUp](h, events.PreCopyCaughtUp)
	stop, receipt = h.stopAll(plan)
	return stop, said, receipt
}

// Steps are as long as this machine needs: where 4 MiB take longer to move than a step, nobody catches up.
func TestAJoiningNodePreCopiesAndTakesOnlyTheLastChangesWhereAllArePaused(t *testing.T) {
	for step, caughtUp := 100*time.Millisecond, false; !caughtUp; step *= 4 {
		t.Run(step.String(), func(t *testing.T) {
			h, joiner := newHub(t), &replica{}
			h.stepTime = step
			layer := h.content()[:4<<20]
			stop, said, receipt := h.scaleOut(layer, joiner)
			if caughtUp = said.Behind <= 1 || step > 5*time.Second; caughtUp {
				h.preCopied(layer, joiner, stop, said, receipt)
			}
		})
	}
}

// preCopied expects that a joiner had all but the last changes before all were paused.
func (h *hub) preCopied(layer []byte, joiner *replica, stop uint64, said events.CaughtUp, receipt events.Receipt) {
	t := h.t
	if said.Reason != "" || said.Step < 1 || said.Behind > 1 {
		t.Fatalf("it says %+v: expected that it has caught up", said)
	}
	if want := new(replica).at(layer, stop); !joiner.has(want) {
		t.Fatalf("the layer is not that of step %d", stop)
	}
	if len(receipt.Units) != 1 || receipt.Units[0].Step != stop || len(receipt.Sources) != 2 {
		t.Errorf("receipt %+v: expected layer 0 at step %d from two sources", receipt, stop)
	}
	came := int64(0)
	for _, source := range receipt.Sources {
		came += source.Bytes
	}
	if changes := int64(stop-said.Step) * int64(len(layer)/2); came > said.Bytes+changes {
		t.Errorf("%d bytes came: expected the layer and changes alone, %d", came, said.Bytes+changes)
	}
}

func TestWhatWasPreCopiedIsRetiredWithTheNegotiation(t *testing.T) {
	h := newHub(t)
	layer := h.content()[:4<<20]
	stop, _, _ := h.scaleOut(layer, &replica{})
	giver := h.sessions[0]
	h.say(events.Aborted, "g2", &events.Abort{Negotiation: "g2", Generation: 2, Reason: "test"})
	h.awaitRetired(giver)
	for step := range stop + 1 {
		share := new(replica).at(layer, step)[:len(layer)/2]
		if _, err := giver.store.Get(events.Digest(share)); err == nil {
			t.Fatalf("the share of step %d is still there", step)
		}
	}
}

func TestALayerThatCameOutOtherwiseWhileItWasPreCopiedIsFetched(t *testing.T) {
	h := newHub(t)
	layer := h.content()[:4<<20]
	joiner := &replica{bent: true}
	stop, _, receipt := h.scaleOut(layer, joiner)
	if want := new(replica).at(layer, stop); !joiner.has(want) {
		t.Fatalf("the layer is not that of step %d", stop)
	}
	if receipt.Units[0].Digest != events.Digest(new(replica).at(layer, stop)) {
		t.Error("the receipt names other bytes")
	}
}

func TestAReceiverThatCannotPreCopySaysWhyAndTakesItsLayersWhereAllArePaused(t *testing.T) {
	h := newHub(t)
	layer, joiner := h.content()[:4<<20], &replica{}
	stop, said, receipt := h.scaleOut(layer, joiner,
		func(members []events.Member) { members[0].ShardAddress = "127.0.0.1:1" })
	if said.Reason != "the store of n1 is out of reach" || !joiner.has(new(replica).at(layer, stop)) {
		t.Fatalf("it says %+v; right bytes: %t", said, joiner.has(new(replica).at(layer, stop)))
	}
	if len(receipt.Units) != 1 || receipt.Units[0].Step != stop {
		t.Errorf("receipt %+v: expected layer 0 at step %d", receipt, stop)
	}
}

func TestAReceiverThatFallsBehindTakesItsLayersWhereAllArePaused(t *testing.T) {
	h := newHub(t)
	layer, joiner := h.content()[:4<<20], &replica{large: true, pause: 500 * time.Millisecond}
	plan := h.startJoin(layer, joiner)
	said := await[events.CaughtUp](h, events.PreCopyCaughtUp)
	giver := h.sessions[0]
	waitFor(t, "the giver leads it no more", func() bool {
		giver.mutex.Lock()
		sender := giver.exchange.preSender
		giver.mutex.Unlock()
		return sender.Answer(events.PreCopyRequest{To: "n3", Step: said.Step}).Gone
	})
	if stop, _ := h.stopAll(plan); !joiner.has((&replica{large: true}).at(layer, stop)) {
		t.Fatalf("the layer is not that of step %d", stop)
	}
}

func TestAChangeIsKeptThatIsLikeOneAlreadyTaken(t *testing.T) {
	h := newHub(t)
	layer, joiner := h.content()[:4<<20], &replica{alike: true, pause: 350 * time.Millisecond}
	stop, said, _ := h.scaleOut(layer, joiner)
	if said.Reason != "" || !joiner.has((&replica{alike: true}).at(layer, stop)) {
		t.Fatalf("it says %+v; right bytes: %t", said, joiner.has((&replica{alike: true}).at(layer, stop)))
	}
}

func TestAReceiverPreCopiesOfWhoHasTrainedTheLastStep(t *testing.T) {
	h := newHub(t)
	h.steps, h.stepTime = 2, time.Millisecond
	layer, joiner := h.content()[:4<<20], &replica{}
	stop, said, _ := h.scaleOut(layer, joiner)
	if said.Reason != "" || stop != h.steps || !joiner.has(new(replica).at(layer, stop)) {
		t.Fatalf("it says %+v, all stopped at %d; right bytes: %t", said, stop, joiner.has(new(replica).at(layer, stop)))
	}
}

// deliberate is a state that takes its time to give a unit. It is not done before the test says so.
type deliberate struct {
	*replica
	begun, done chan struct{}
}

func (d *deliberate) Export(unit int, step uint64) ([]byte, error) {
	close(d.begun)
	<-d.done
	return d.replica.Export(unit, step)
}

func TestAGiverWhoseStateIsSlowToGiveSaysThatItsConsentComesLater(t *testing.T) {
	h := newHub(t)
	members, layer := []events.Member{h.join("n1"), h.join("n2")}, h.content()[:4<<20]
	giver := &deliberate{&replica{shelfOf: shelfOf{layer: layer}}, make(chan struct{}), make(chan struct{})}
	first, second := replicas(1, "", members, "n1"), replicas(2, events.Digest(nil), members, "n1", "n2")
	second.Migration = events.Migration{ShardBytes: 1 << 20, Transfers: []events.Transfer{{
		Unit: 0, To: "n2", Bytes: 4 << 20, Sources: []events.Source{{Node: "n1", Shards: events.Range{End: 4}}},
	}}}
	h.say(events.PlanCommitted, "1", &first)
	h.trainOn(h.sessions[0], giver.replica, giver)
	h.trainOn(h.sessions[1], &replica{})
	give := sync.OnceFunc(func() { close(giver.done) })
	t.Cleanup(give)
	waitFor(t, "it trains", h.sessions[0].trained)
	join := events.Change{Kind: events.ChangeJoin, Node: "n2", Cause: "x"}
	h.say(events.NegotiationOpened, "g2", &events.Opening{
		Negotiation: "g2", Generation: 2, Members: members, Changes: []events.Change{join},
	})
	h.say(events.PreCopyStarted, "g2", &events.PreCopyStart{Negotiation: "g2", Plan: second})
	select {
	case <-giver.begun:
	case <-time.After(patience):
		t.Fatal("nothing is pre-copied")
	}
	failure := events.Change{Kind: events.ChangeFailure, Node: "n3", Cause: "y"}
	h.say(events.NegotiationOpened, "g2-again", &events.Opening{
		Negotiation: "g2-again", Generation: 2, Members: members, Abandon: true, Changes: []events.Change{join, failure},
	})
	if delay := await[events.Delay](h, events.ConsentDelayed); delay.Negotiation != "g2-again" || delay.Node != "n1" {
		t.Errorf("said %+v", delay)
	}
	give()
	for consent := await[events.Consent](h, events.Consented); consent.Node != "n1" || consent.Negotiation != "g2-again"; {
		consent = await[events.Consent](h, events.Consented)
	}
}

func TestATrainerThatComesToItsLoopWhenAllArePausedIsServed(t *testing.T) {
	h := newHub(t)
	h.late = true
	layer, joiner := h.content()[:4<<20], &replica{}
	plan := h.startJoin(layer, joiner)
	time.AfterFunc(10*h.stepTime, func() { h.trainOn(h.sessions[2], joiner) })
	stop, _ := h.stopAll(plan)
	if !joiner.has(new(replica).at(layer, stop)) {
		t.Fatal("it has wrong bytes")
	}
}

func TestAStateThatCannotBePreCopiedIsRefusedWhereTheConfigurationSaysItCan(t *testing.T) {
	h := newHub(t)
	h.join("n1")
	_, err := h.sessions[0].Boundary(t.Context(), 0, &shelfOf{})
	if err == nil || !strings.Contains(err.Error(), "Config.PreCopies") {
		t.Fatalf("got %v", err)
	}
}
