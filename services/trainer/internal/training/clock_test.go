package training

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/reknit/reknit/services/trainer/internal/transport"
)

// wires are links on which messages take their time on a clock of their own: real trainers send real messages, and nobody waits.
type wires struct {
	mutex  sync.Mutex
	slow   map[string]bool    // pairs, both ways
	free   map[string]float64 // by pair: since when its link is
	comes  map[parcel]float64 // when a message has come
	clocks map[string]*clocked
}

// parcel names a message.
type parcel struct {
	from, to string
	step     uint64
	phase    uint32
	item     uint64
}

// A usual link carries the test's gradients in about a twentieth of the time of a micro-batch; a slow one has a 200th of that.
const (
	passSeconds    = 1.0
	bytesPerSecond = 4e5
	slower         = 200
)

// clocked is a network whose node has a clock.
type clocked struct {
	Network
	wires *wires
	node  *node
	share int // micro-batches of a step
	step  uint64
	now   float64
}

func (c *clocked) Begin(step uint64) {
	c.step = step
	c.now += passSeconds * float64(c.share)
	c.Network.Begin(step)
}

func (c *clocked) Send(to string, phase uint32, item uint64, payload []byte) error {
	w, pair, rate := c.wires, c.node.name+to, float64(bytesPerSecond)
	w.mutex.Lock()
	if w.slow[pair] || w.slow[to+c.node.name] {
		rate /= slower
	}
	w.free[pair] = max(w.free[pair], c.now) + float64(len(payload))/rate
	w.comes[parcel{c.node.name, to, c.step, phase, item}] = w.free[pair]
	w.mutex.Unlock()
	return c.Network.Send(to, phase, item, payload)
}

func (c *clocked) Receive(ctx context.Context, phase uint32) (transport.Message, error) {
	message, err := c.Network.Receive(ctx, phase)
	c.wires.mutex.Lock()
	c.now = max(c.now, c.wires.comes[parcel{message.From, c.node.name, c.step, message.Phase, message.Item}])
	c.wires.mutex.Unlock()
	return message, err
}

// stepSecondsIn is how long a step takes replicas that reduce in the order of a ring, some pairs of which are slow.
func stepSecondsIn(t *testing.T, shares map[string]int, ring string, slow ...string) float64 {
	c := newCluster(t, testConfig(t))
	names, chains := strings.Fields(ring), []chain{}
	w := &wires{slow: map[string]bool{}, free: map[string]float64{}, comes: map[parcel]float64{}, clocks: map[string]*clocked{}}
	for _, pair := range slow {
		w.slow[pair] = true
	}
	for _, name := range names {
		chains = append(chains, chain{shares[name], name, []int{6}})
		c.start(name, func(n *node, network Network) Network {
			w.clocks[name] = &clocked{Network: network, wires: w, node: n, share: shares[name]}
			return w.clocks[name]
		})
	}
	plan := planOf(c.config, chains...)
	for _, round := range plan.Sync.Rounds {
		for g := range round.Groups {
			round.Groups[g].Nodes = names
		}
	}
	c.begin(plan, names...)
	c.expectOracle()
	last := 0.0
	for _, clock := range w.clocks {
		last = max(last, clock.now)
	}
	return last / float64(c.config.Steps)
}

func TestASlowPairIsNotPaidAroundARingThatKeepsItApart(t *testing.T) {
	three := stepSecondsIn(t, map[string]int{"a": 3, "b": 3, "c": 2}, "a b c")
	four := map[string]int{"a": 2, "b": 2, "c": 2, "d": 2}
	naive, planned := stepSecondsIn(t, four, "a b c d", "da"), stepSecondsIn(t, four, "a b d c", "da")
	free := stepSecondsIn(t, four, "a b c d")
	t.Logf("a step of three takes %.3f s; of four %.3f s by name, %.2f times as long, %.3f s in the plan's order, %.2f times; "+
		"%.3f s without a slow pair", three, naive, naive/three, planned, planned/three, free)
	if naive < 2*three || planned > 1.05*three || planned > 1.001*free {
		t.Errorf("expected that the slow pair costs twice as much by name, and nothing in the plan's order")
	}
}
