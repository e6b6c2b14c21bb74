package training

import (
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent"
)

const (
	spoiledNode  = "b"
	spoiledLayer = 3
	spoiledStep  = 2
)

// spoilOnce changes one float of one replica, once, when its node stands at a boundary.
func spoilOnce() func(n *node, done uint64, lent agent.State) {
	var once sync.Once
	return func(n *node, done uint64, lent agent.State) {
		if n.name == spoiledNode && done == spoiledStep {
			once.Do(func() { lent.(lentState).Trained(spoiledLayer).Parameters[0] += 0.5 })
		}
	}
}

// replicas returns who holds what of a layer at a step.
func (c *cluster) replicas(layer int, step uint64) map[string]string {
	held := map[string]string{}
	for _, name := range c.alive() {
		data, err := c.nodes[name].state.Export(layer, step)
		if err != nil {
			c.t.Fatal(err)
		}
		held[name] = events.Digest(data)
	}
	return held
}

// divergences counts the layers of which not all replicas are equal.
func (c *cluster) divergences(step uint64) (count int) {
	for layer := range c.config.Shape.Units() {
		digests := slices.Sorted(maps.Values(c.replicas(layer, step)))
		if len(slices.Compact(digests)) > 1 {
			count++
		}
	}
	return count
}

func TestOneFloatOfOneReplicaSpoiledOnceIsRestoredOnceAndTrainsTheSameModel(t *testing.T) {
	c := newCluster(t, testConfig(t))
	c.lent, c.pauses = spoilOnce(), []uint64{spoiledStep, 4}
	plan := func() *events.Plan {
		return planOf(c.config, chain{3, "a", []int{6}}, chain{3, "b", []int{6}}, chain{2, "c", []int{6}})
	}
	c.begin(plan(), "a", "b", "c")
	paused := func(step uint64) func() bool {
		return func() bool { return c.allWait() && c.nodes["a"].done == step }
	}
	if !c.await("all pause", paused(spoiledStep)) || c.divergences(spoiledStep) != 1 {
		t.Fatalf("%d layers diverged: expected one", c.divergences(spoiledStep))
	}
	if err := c.give(spoiledNode, spoiledLayer, spoiledStep); err != nil { // "a" comes first, and is right
		t.Fatal(err)
	}
	c.follow(plan())
	if !c.await("all pause again", paused(4)) || c.divergences(4) != 0 {
		t.Fatalf("%d layers diverged after the restoration: expected none", c.divergences(4))
	}
	c.follow(plan())
	c.expectOracle()
}
