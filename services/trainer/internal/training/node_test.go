package training

import (
	"context"
	"fmt"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent"
	"github.com/reknit/reknit/services/trainer/internal/transport"
)

// node is a trainer, and what is known of it while it waits at its boundary.
type node struct {
	cluster   *cluster
	name      string
	address   string
	kill      context.CancelFunc
	ended     chan error
	dead      bool
	waiting   bool
	done      uint64
	completed bool // the last step
	state     agent.State
	orders    chan agent.Orders
	transport *transport.Transport
}

// Boundary waits where the cluster wants it.
func (n *node) Boundary(ctx context.Context, done uint64, state agent.State) (agent.Orders, error) {
	c := n.cluster
	if ctx.Err() != nil {
		return agent.Orders{}, ctx.Err()
	}
	if c.lent != nil {
		c.lent(n, done, state)
		n.completed = false
	}
	c.change(func() {
		n.done, n.state, n.waiting = done, state, true
		if c.plan != nil && done < c.stop && !c.fresh(n.name) {
			n.waiting = false
			n.orders <- agent.Orders{Plan: c.plan, Step: c.step}
		}
	})
	select {
	case <-ctx.Done():
		return agent.Orders{}, ctx.Err()
	case orders, ok := <-n.orders:
		if !ok {
			return agent.Orders{}, agent.ErrLeft
		}
		step, cancel := context.WithCancel(ctx)
		context.AfterFunc(orders.Step, cancel)
		orders.Step = step
		return orders, nil
	}
}

func (n *node) Report(step uint64, stepSeconds, loss float64) {
	n.completed = true
	n.cluster.change(func() {
		n.cluster.reported[n.name] = step
		if loss != 0 {
			n.cluster.losses[step] = loss
		}
	})
}

// Broken has everybody give the step up. The same nodes go on.
func (n *node) Broken(string) {
	c, first := n.cluster, false
	c.change(func() {
		first, c.recovers = !c.recovers, true
		c.stop = 0
		c.cancel()
	})
	if first {
		go c.recover()
	}
}

func (n *node) Computed(float64) {}

func (n *node) Profiled(events.Profile) {}

func (n *node) Digested(_ context.Context, step uint64, final bool, layers []events.UnitDigest) error {
	if !final {
		return nil
	}
	if step != n.cluster.config.Steps {
		return fmt.Errorf("digests at step %d, final %v: expected the final ones at step %d",
			step, final, n.cluster.config.Steps)
	}
	n.cluster.change(func() { n.cluster.digests[n.name] = layers })
	return nil
}
