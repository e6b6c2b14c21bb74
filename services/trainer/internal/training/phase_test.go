package training

import (
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent"
	"github.com/reknit/reknit/services/trainer/internal/transport"
)

// hanging is a network whose trainer does not get on in the middle of the passes of one step.
type hanging struct {
	Network
	step uint64
	ends chan struct{}
}

func (h *hanging) Begin(step uint64) {
	h.step = step
	h.Network.Begin(step)
}

func (h *hanging) Take(phase uint32) (transport.Message, bool) {
	message, there := h.Network.Take(phase)
	if there && h.step == 2 {
		<-h.ends
	}
	return message, there
}

// The monitor finds who hangs by that: one computes, and all others wait for it.
func TestATrainerThatHangsTellsThatItComputesAndTheOthersThatTheyWait(t *testing.T) {
	c := newCluster(t, testConfig(t))
	lent := map[string]agent.Worker{}
	c.lent = func(n *node, _ uint64, state agent.State) {
		c.mutex.Lock()
		defer c.mutex.Unlock()
		lent[n.name] = state.(agent.Worker)
	}
	ends := make(chan struct{})
	c.start("b", func(_ *node, network Network) Network { return &hanging{Network: network, ends: ends} })
	c.begin(twoByThree(c.config), sixNodes...)
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		told := map[string]string{}
		c.mutex.Lock()
		for _, worker := range lent {
			worker.Phase() // of the heartbeat before
		}
		c.mutex.Unlock()
		time.Sleep(10 * time.Millisecond)
		c.mutex.Lock()
		for name, worker := range lent {
			told[name] = worker.Phase()
		}
		c.mutex.Unlock()
		waiting := 0
		for name, phase := range told {
			if name != "b" && phase == events.PhaseWaiting {
				waiting++
			}
		}
		if told["b"] == events.PhaseComputing && waiting == len(sixNodes)-1 {
			break
		}
		if time.Since(began) > patience {
			t.Fatalf("they tell %v, expected that b computes and all others wait", told)
		}
	}
	close(ends)
	c.expectOracle()
}

// A whole pass on a slow machine was one move: who is slow was told as one that hangs.
func TestEachLayerIsAMoveOfItsOwn(t *testing.T) {
	c := newCluster(t, testConfig(t))
	var worker *worker
	c.lent = func(_ *node, _ uint64, state agent.State) { worker = state.(lentState).worker }
	c.begin(planOf(c.config, chain{8, "a", []int{6}}), "a")
	c.expectOracle()
	layers, microBatches, steps := 6, 8, int(c.config.Steps)
	if moves, least := int(worker.phase.moves.Load()), 2*layers*microBatches*steps; moves < least {
		t.Errorf("it made %d moves in %d steps without a message, expected at least the %d passes of layers", moves, steps, least)
	}
}

func TestATrainerThatGetsOnWithinItsStepTellsNeither(t *testing.T) {
	var p phase
	told := func() string { p.tell(); return p.tell() }
	if told() != "" {
		t.Error("it tells something before its first step")
	}
	p.enter(events.PhaseComputing)
	if told() != events.PhaseComputing {
		t.Error("it does not tell that it computes")
	}
	for range 3 { // passes, between two heartbeats each
		p.enter(events.PhaseWaiting)
		p.enter(events.PhaseComputing)
		if said := p.tell(); said != "" {
			t.Errorf("it tells that it is %s, and got on", said)
		}
	}
}
