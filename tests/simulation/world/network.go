package world

import (
	"math"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/tests/simulation/stream"
)

// network is what lies between the nodes, and between each and the hub. A way that is cut is a black hole: nothing
// comes through and nobody is told.
type network struct {
	noHub   map[string]bool // node: its way to the hub is cut
	dropped map[string]bool // node: the hub knows that its connection ended, as where a router on the way starts anew
	mute    map[string]bool // node: what it says to the hub is lost
	deaf    map[string]bool // node: what the hub says to it is lost
	stale   map[string]bool // node: it has noticed that nothing comes from the hub, and finds no way to it
	noPeers map[string]bool // node: its ways to all other nodes are cut
	cut     map[events.Pair]bool
	slow    map[events.Pair]float64 // of the usual bandwidth
	scatter float64                 // by which share a measurement of any link may be off
	sites
}

const (
	usualBandwidth = 50 << 20 // bytes a second
	usualRoundTrip = 4 * time.Millisecond
)

func newNetwork() network {
	return network{
		noHub: map[string]bool{}, dropped: map[string]bool{}, mute: map[string]bool{}, deaf: map[string]bool{},
		stale: map[string]bool{}, noPeers: map[string]bool{}, cut: map[events.Pair]bool{}, slow: map[events.Pair]float64{},
		sites: newSites(),
	}
}

// toHub reports whether a node and the hub hear each other.
func (w *World) toHub(node string) bool { return w.isHeard(node) && !w.deaf[node] }

// isHeard reports whether the hub hears a node.
func (w *World) isHeard(node string) bool { return w.online(node) && !w.mute[node] }

// hears reports whether a node hears the hub.
func (w *World) hears(node string) bool { return w.online(node) && !w.deaf[node] }

// online reports whether a node believes that it is connected to the hub: a black hole of one direction shows late.
func (w *World) online(node string) bool {
	return !w.hub.away() && !w.noHub[node] && !w.stale[node] && !w.isAlone(node)
}

// staleAfter is after how long a client gives up a connection on which its pings have no answer, as in shared/bus.
const staleAfter = 3 * time.Second

// fate draws what becomes of a node's request to the hub.
func (w *World) fate(node string) stream.Fate {
	switch {
	case w.mute[node]:
		return stream.Lost
	case w.deaf[node]:
		return stream.Unheard
	}
	return w.hub.fate(w.random)
}

// direct reports whether two nodes hear each other on the data plane.
func (w *World) direct(a, b string) bool {
	return a == b || !w.noPeers[a] && !w.noPeers[b] && !w.cut[events.PairOf(a, b)] && !w.apart(a, b)
}

// connected reports whether two nodes of a plan reach each other, directly or as the plan says through the hub.
func (w *World) connected(plan *events.Plan, a, b string) bool {
	for _, pair := range plan.Relays {
		if pair == events.PairOf(a, b) {
			return w.toHub(a) && w.toHub(b)
		}
	}
	return w.direct(a, b)
}

// allConnected reports whether of these nodes of a plan each reaches each other.
func (w *World) allConnected(plan *events.Plan, nodes []string) bool {
	suspects := w.suspects(plan)
	if len(suspects) == 0 {
		return true
	}
	for _, a := range nodes {
		if !suspects[a] {
			continue
		}
		for _, b := range nodes {
			if a != b && !w.connected(plan, a, b) {
				return false
			}
		}
	}
	return true
}

// suspects returns the nodes that may not reach some other node of a plan. All others reach each other.
func (w *World) suspects(plan *events.Plan) map[string]bool {
	if len(plan.Relays)+len(w.cut)+len(w.noPeers)+len(w.cutOff)+len(w.without) == 0 {
		return nil
	}
	suspects := map[string]bool{}
	for _, pair := range plan.Relays {
		suspects[pair.A] = true
	}
	for pair := range w.cut {
		suspects[pair.A] = true
	}
	for node := range w.noPeers {
		suspects[node] = true
	}
	if w.allWork() {
		return suspects
	}
	for _, member := range plan.Nodes {
		if w.isAlone(member.Node) {
			suspects[member.Node] = true
		}
	}
	return suspects
}

// leastBandwidth is that of the slowest link of a ring.
func (n *network) leastBandwidth(ring []string) float64 {
	if len(n.slow) == 0 {
		return usualBandwidth
	}
	least := math.Inf(1)
	for i, node := range ring {
		least = min(least, n.bandwidth(node, ring[(i+1)%len(ring)]))
	}
	return least
}

// bandwidth is in bytes a second, one way.
func (n *network) bandwidth(a, b string) float64 {
	if factor, slow := n.slow[events.PairOf(a, b)]; slow {
		return usualBandwidth * factor
	}
	return usualBandwidth
}
