package training

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/trainer/internal/transport"
)

// tap counts the bytes that a node sends each other one, passes not counted.
type tap struct {
	Network
	from  string
	mutex *sync.Mutex
	bytes map[string]int // by pair
}

func (t *tap) Send(to string, phase uint32, item uint64, payload []byte) error {
	if phase != passPhase {
		t.mutex.Lock()
		t.bytes[t.from+to] += len(payload)
		t.mutex.Unlock()
	}
	return t.Network.Send(to, phase, item, payload)
}

// The pairs a-b, c-d and so on are slow, or whatever else the plan's order keeps apart.
func TestGradientsGoAroundInThePlansOrderAndNoOtherPairExchangesAny(t *testing.T) {
	for _, partitions := range []int{0, 3} {
		config := testConfig(t)
		config.Shape.Partitions = partitions
		plan := planOf(config, chain{3, "a", []int{6}}, chain{2, "b", []int{6}}, chain{2, "c", []int{6}}, chain{1, "d", []int{6}})
		ring := []string{"a", "c", "b", "d"}
		for r := range plan.Sync.Rounds {
			plan.Sync.Rounds[r].Groups[0].Nodes = ring
		}
		c, mutex, bytes := newCluster(t, config), sync.Mutex{}, map[string]int{}
		for _, name := range ring {
			c.start(name, func(n *node, network Network) Network { return &tap{network, n.name, &mutex, bytes} })
		}
		c.begin(plan, ring...)
		c.expectOracle()
		mutex.Lock()
		for i, from := range ring {
			for k, to := range ring {
				if isNext := k == (i+1)%len(ring); isNext != (bytes[from+to] > 0) {
					t.Errorf("%d partitions: %s sent %s %d bytes, in the ring %s", partitions, from, to, bytes[from+to], strings.Join(ring, " "))
				}
			}
		}
		mutex.Unlock()
	}
}

func TestARingWithARelayedPairTrainsTheSameModel(t *testing.T) {
	c := newCluster(t, testConfig(t))
	plan := planOf(c.config, chain{3, "a", []int{6}}, chain{3, "b", []int{6}}, chain{2, "c", []int{6}})
	plan.Relays = []events.Pair{{A: "a", B: "c"}}
	c.begin(plan, "a", "b", "c")
	c.expectOracle()
}

// mail is a network from which messages come in a given order.
type mail struct {
	Network
	messages []transport.Message
}

func (m *mail) Receive(context.Context, uint32) (transport.Message, error) {
	message := m.messages[0]
	m.messages = m.messages[1:]
	return message, nil
}

func TestMessagesOfOneHopMayComeBeforeThoseOfTheHopBefore(t *testing.T) {
	r := ring{phase: 1, members: []string{"a", "b", "c"}, early: map[int][]byte{}}
	r.worker = &worker{network: &mail{messages: []transport.Message{
		{From: "c", Phase: 1, Item: 2, Payload: []byte("second")}, {From: "c", Phase: 1, Item: 1, Payload: []byte("first")},
	}}}
	var came []string
	for hop := 1; hop < 3; hop++ {
		payload, err := r.receive(t.Context(), hop)
		if err != nil {
			t.Fatal(err)
		}
		came = append(came, string(payload))
	}
	if !slices.Equal(came, []string{"first", "second"}) {
		t.Errorf("%q came", came)
	}
}

func TestAMessageThatNoNeighbourOwesIsRefused(t *testing.T) {
	for _, message := range []transport.Message{{From: "b", Item: 1}, {From: "c", Item: 0}, {From: "c", Item: 3}} {
		r := ring{phase: 1, members: []string{"a", "b", "c"}, early: map[int][]byte{}}
		r.worker = &worker{network: &mail{messages: []transport.Message{message}}}
		if _, err := r.receive(t.Context(), 1); err == nil {
			t.Errorf("message %d from %s was taken", message.Item, message.From)
		}
	}
}
