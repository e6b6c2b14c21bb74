package world

import "time"

// Now returns how much virtual time has passed.
func (w *World) Now() time.Duration { return w.now }

// Runs reports whether a node's process lives, and its trainer is in a step.
func (w *World) Runs(node string) bool {
	n := w.byName(node)
	return n != nil && n.process != nil && n.process.collective != nil && !n.process.stopped()
}

// Store is how full one of the hub's stores is.
type Store struct {
	Name        string
	Held, Bound int64 // bytes
}

// Stores returns what the hub holds, without the shard parts, which are not modelled.
func (w *World) Stores() []Store {
	var stores []Store
	for i, sized := range []interface{ Size() (held, bound int64) }{
		w.hub.Events, w.hub.Events.Payloads, w.hub.Plans, w.hub.Plans.Payloads, w.hub.Snapshots,
	} {
		held, bound := sized.Size()
		name := []string{"events", "payloads of events", "plans", "payloads of plans", "memories"}[i]
		stores = append(stores, Store{name, held, bound})
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
