package world

import (
	"time"

	"github.com/reknit/reknit/events"
)

// Now returns how much virtual time has passed.
func (w *World) Now() time.Duration { return w.now }

// Runs reports whether a node's process lives, and its trainer is in a step.
func (w *World) Runs(node string) bool {
	n := w.byName(node)
	return n != nil && n.process != nil && n.process.collective != nil && !n.process.stopped()
}

// IsWell reports whether an incarnation of a node lives, its trainer does not stand, and it reaches the hub and its peers.
func (w *World) IsWell(node, incarnation string) bool {
	n := w.byName(node)
	if n == nil || n.process == nil || n.process.incarnation != incarnation || n.process.stopped() {
		return false
	}
	return w.toHub(node) && !w.noPeers[node]
}

// Store is how full one of the hub's stores is.
type Store struct {
	Name        string
	Held, Bound int64         // bytes
	Age         time.Duration // at which it drops what it holds; zero: never
}

// Stores returns what the hub holds, without the shard parts, which are not modelled.
func (w *World) Stores() []Store {
	ages := map[string]time.Duration{}
	for _, store := range events.ObjectStores {
		ages[store.Bucket] = store.MaxAge
	}
	stores := []Store{
		{Name: events.EventStream.Name, Age: events.EventStream.MaxAge},
		{Name: events.PayloadBucket, Age: ages[events.PayloadBucket]},
		{Name: events.PlanStream.Name, Age: events.PlanStream.MaxAge},
		{Name: events.PlanPayloadBucket, Age: ages[events.PlanPayloadBucket]},
		{Name: events.SnapshotBucket},
	}
	for i, sized := range []interface{ Size() (held, bound int64) }{
		w.hub.Events, w.hub.Events.Payloads, w.hub.Plans, w.hub.Plans.Payloads, w.hub.Snapshots,
	} {
		stores[i].Held, stores[i].Bound = sized.Size()
	}
	return stores
}

// Machines returns the machine of each service that runs, and of each node's agent, by name.
func (w *World) Machines() map[string]any {
	machines := map[string]any{}
	for _, name := range serviceNames {
		if i := w.services[name].last(); i != nil {
			machines[name] = i.machine
		}
	}
	for _, n := range w.nodes {
		if n.process != nil {
			machines[n.name] = n.process.agent
		}
	}
	return machines
}
