package training

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent"
	"github.com/reknit/reknit/services/trainer/internal/transport"
	"github.com/reknit/reknit/services/trainer/model"
)

// patience is how long a test waits for what must happen; nothing takes that long.
const patience = 2 * time.Minute

// cluster stands in for the whole control plane: it hands out plans, and makes a new one where a node is suspected.
// Its trainers are real, over real connections.
type cluster struct {
	t      testing.TB
	config Config
	replan func(survivors []string) *events.Plan         // where a node dies
	lent   func(n *node, done uint64, state agent.State) // looks at the state that a boundary is given

	mutex    sync.Mutex
	changed  chan struct{} // closed and replaced whenever something below changes
	plan     *events.Plan
	pauses   []uint64 // completed steps at which everybody waits for the next plan
	stop     uint64   // the next of them, or the end
	step     context.Context
	cancel   context.CancelFunc
	finished bool // everybody may leave
	recovers bool // a plan for the survivors is being made
	nodes    map[string]*node
	digests  map[string][]events.UnitDigest // final ones, by node
	losses   map[uint64]float64             // by completed steps
	reported map[string]uint64              // completed steps, by node
}

func newCluster(t testing.TB, config Config) *cluster {
	return &cluster{
		t: t, config: config, changed: make(chan struct{}), nodes: map[string]*node{},
		digests: map[string][]events.UnitDigest{}, losses: map[uint64]float64{}, reported: map[string]uint64{},
	}
}

// change alters the cluster and lets waiters look again.
func (c *cluster) change(alter func()) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	alter()
	close(c.changed)
	c.changed = make(chan struct{})
}

// await waits until something holds, and reports whether it did.
func (c *cluster) await(what string, holds func() bool) bool {
	deadline := time.After(patience)
	for {
		c.mutex.Lock()
		ok, changed := holds(), c.changed
		c.mutex.Unlock()
		if ok {
			return true
		}
		select {
		case <-changed:
		case <-deadline:
			c.t.Errorf("waited in vain until %s: %s", what, c.describe())
			return false
		}
	}
}

func (c *cluster) describe() string {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	text := fmt.Sprintf("plan %+v", c.plan)
	for _, name := range slices.Sorted(maps.Keys(c.nodes)) {
		n := c.nodes[name]
		text += fmt.Sprintf("; %s dead %v waiting %v done %d", name, n.dead, n.waiting, n.done)
	}
	return text
}

// start starts a trainer. Wrap may put something between it and its data plane.
func (c *cluster) start(name string, wrap func(*node, Network) Network) *node {
	c.t.Helper()
	ctx, kill := context.WithCancel(c.t.Context())
	n := &node{cluster: c, name: name, kill: kill, ended: make(chan error, 1), orders: make(chan agent.Orders, 1)}
	data, err := transport.Listen(ctx, transport.Config{
		Cluster: "test", Node: name, Listen: "127.0.0.1:0",
		Suspect: func(peer string, refused bool, reason string) {
			c.suspect(name, peer, refused, reason)
		},
		Relay: c.relay,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	n.address, n.transport = data.Address(), data
	c.change(func() { c.nodes[name] = n })
	config := c.config
	config.Node = name
	var network Network = data
	if wrap != nil {
		network = wrap(n, data)
	}
	go func() {
		err := New(config, n, network).Run(ctx)
		if err != nil && !errors.Is(err, context.Canceled) {
			c.t.Errorf("%s: %v", name, err)
		}
		data.Close()
		n.ended <- err
		close(n.ended)
	}()
	c.t.Cleanup(func() {
		kill()
		for range n.ended {
		}
	})
	return n
}

func (c *cluster) relay(to string, frame []byte) error {
	c.mutex.Lock()
	n := c.nodes[to]
	c.mutex.Unlock()
	n.transport.Relayed("", frame)
	return nil
}

// suspect takes a refused connection for a death: everybody gives the step up, and a new plan follows.
func (c *cluster) suspect(by, name string, refused bool, reason string) {
	first := false
	c.change(func() {
		if c.finished && !c.nodes[name].dead {
			c.t.Errorf("%s suspects %s, which left in peace: %s", by, name, reason)
			return
		}
		if n := c.nodes[name]; refused && c.replan != nil && !n.dead {
			first, c.recovers = !c.recovers, true
			n.dead = true
			c.stop = 0 // nobody begins another step
			c.cancel()
		}
	})
	if first {
		go c.recover()
	}
}

// recover plans for the survivors, once all of them wait.
func (c *cluster) recover() {
	if !c.await("all survivors wait", c.allWait) {
		return
	}
	c.mutex.Lock()
	survivors := c.alive()
	c.mutex.Unlock()
	c.follow(c.replan(survivors))
}

func (c *cluster) alive() []string {
	var names []string
	for name, n := range c.nodes {
		if !n.dead {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (c *cluster) allWait() bool {
	for _, name := range c.alive() {
		if !c.nodes[name].waiting {
			return false
		}
	}
	return true
}

// follow moves the layers that a plan moves, has it adopted at the newest version that can be had, and lets its nodes
// go on.
func (c *cluster) follow(plan *events.Plan) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.plan != nil {
		plan.Generation = c.plan.Generation + 1
	}
	for _, name := range c.alive() {
		plan.Nodes = append(plan.Nodes, events.Member{Node: name, Incarnation: "of-" + name, Address: c.nodes[name].address})
	}
	if err := plan.Validate(); err != nil {
		c.t.Errorf("the test's plan: %v", err)
		return
	}
	plan.ResumeStep = c.newestVersion()
	plan.Data.ConsumedSamples = plan.ResumeStep * uint64(plan.Data.GlobalBatch)
	c.plan, c.stop = plan, c.config.Steps
	for _, pause := range c.pauses {
		if pause > plan.ResumeStep {
			c.stop = min(c.stop, pause)
		}
	}
	c.step, c.cancel = context.WithCancel(c.t.Context())
	for _, name := range c.alive() {
		if err := c.fetch(name, plan.UnitsOf(name), plan.ResumeStep); err != nil {
			c.t.Error(err)
			return
		}
	}
	for _, name := range c.alive() {
		n := c.nodes[name]
		_, placed := plan.Holds(name)
		if err := n.state.Adopt(plan.UnitsOf(name), plan.ResumeStep); err != nil {
			c.t.Error(err)
		} else if placed {
			n.waiting = false
			n.orders <- agent.Orders{Plan: plan, Switched: true, Step: c.step}
		}
	}
	c.recovers = false
}

// newestVersion returns the newest step at which every layer has a live holder.
func (c *cluster) newestVersion() uint64 {
	holders := map[uint64]map[int]bool{}
	for _, name := range c.alive() {
		if c.plan != nil && c.fresh(name) {
			continue // it could make step 0, but training is past it
		}
		for _, holding := range c.nodes[name].state.Holdings() {
			for _, step := range holding.Steps {
				if holders[step] == nil {
					holders[step] = map[int]bool{}
				}
				for layer := range events.Each([]events.Range{holding.Units}) {
					holders[step][layer] = true
				}
			}
		}
	}
	newest, found := uint64(0), false
	for step, layers := range holders {
		if len(layers) == c.config.Shape.Units() && (!found || step > newest) {
			newest, found = step, true
		}
	}
	if !found {
		c.t.Error("a layer is lost")
	}
	return newest
}

// fresh reports whether a node had no part in the plan in force.
func (c *cluster) fresh(name string) bool {
	_, member := c.plan.Member(name)
	return !member
}

// fetch imports the layers that a node lacks.
func (c *cluster) fetch(to string, layers []events.Range, step uint64) error {
	for layer := range events.Each(layers) {
		if step == 0 {
			continue
		}
		if _, err := c.nodes[to].state.Export(layer, step); err == nil {
			continue
		}
		if err := c.give(to, layer, step); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) give(to string, layer int, step uint64) error {
	for _, from := range c.alive() {
		data, err := c.nodes[from].state.Export(layer, step)
		if err == nil {
			return c.nodes[to].state.Import(layer, step, data)
		}
	}
	return fmt.Errorf("nobody holds layer %d at step %d", layer, step)
}

// finish waits for the end of training, has everybody leave, and returns the model's digest.
func (c *cluster) finish() string {
	c.t.Helper()
	complete := c.await("training is complete", func() bool {
		for _, name := range c.alive() {
			n := c.nodes[name]
			_, placed := c.plan.Holds(name)
			if c.recovers || !n.waiting || placed && n.done != c.config.Steps {
				return false
			}
		}
		return true
	})
	if !complete {
		c.t.FailNow()
	}
	c.change(func() { c.finished = true })
	layers := make([]string, c.config.Shape.Units())
	for _, name := range c.alive() {
		for _, digest := range c.digests[name] {
			if known := layers[digest.Unit]; known != "" && known != digest.Digest {
				c.t.Errorf("layer %d differs between its holders", digest.Unit)
			}
			layers[digest.Unit] = digest.Digest
		}
		close(c.nodes[name].orders)
	}
	for _, name := range c.alive() {
		if err := <-c.nodes[name].ended; err != nil {
			c.t.Errorf("%s ended with %v: expected to leave in peace", name, err)
		}
	}
	return model.ModelDigest(layers)
}
