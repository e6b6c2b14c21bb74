package policy

import (
	"github.com/reknit/reknit/services/planner/ring"
)

// reducing is a ring of replicas, nodes by their index, that reduce so many bytes of gradients. Each of g replicas sends 2(g-1)
// parts of a g-th to the next one, and waits for as many of the one before: 2(g-1) times the latency + bytes / g / bandwidth of
// the slowest link of the ring (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
// J. Parallel Distrib. Comput. 69(2), 2009). Links that are no part of the ring cost nothing, where equation 2 of DT-FM counts
// those of all pairs. Both are estimate.RingSeconds if links are equal.
type reducing struct {
	network Network
	bytes   int64
	parts   int // that the gradients are cut into; usually as many as there are nodes
	nodes   []int
	at      map[int]int // their positions
}

func (s Situation) reducing(nodes []int, bytes int64) reducing {
	r := reducing{s.Network, bytes, len(nodes), nodes, make(map[int]int, len(nodes))}
	for i, node := range nodes {
		r.at[node] = i
	}
	return r
}

// seconds is the time of one message over a link.
func (r reducing) seconds(link Link) float64 {
	return link.LatencySeconds + float64(r.bytes)/float64(r.parts)/link.BytesPerSecond
}

// costs are the seconds of one message between any two. A pair without a direct link has a part of the usual one, through the
// hub. O(nodes + links).
func (r reducing) costs() ring.Costs {
	var unusual []ring.Edge
	add := func(from, to int, seconds float64) {
		a, isIn := r.at[from]
		if b, both := r.at[to]; isIn && both {
			unusual = append(unusual, ring.Edge{A: a, B: b, Cost: seconds})
		}
	}
	for _, link := range r.network.Links {
		add(link.From, link.To, r.seconds(link))
	}
	for _, pair := range r.network.Dear {
		add(pair[0], pair[1], r.seconds(r.network.usual())/relayedShare)
	}
	costs := ring.NewCosts(len(r.nodes), r.seconds(r.network.usual()), unusual)
	if len(r.network.SiteLinks) == 0 {
		return costs
	}
	var between []ring.Edge
	for _, link := range r.network.SiteLinks {
		between = append(between, ring.Edge{A: link.From, B: link.To, Cost: r.seconds(link)})
	}
	sites := make([]int, len(r.nodes))
	for at, node := range r.nodes {
		if sites[at] = nowhere; node >= 0 {
			sites[at] = r.network.Sites[node]
		}
	}
	return costs.WithSites(sites, between)
}

// nowhere is the site of nodes that are lost.
const nowhere = -1

// order is the nodes as they reduce, and the time that takes.
func (r reducing) order() (nodes []int, seconds float64) {
	if len(r.nodes) < 2 || r.network.BytesPerSecond <= 0 {
		return r.nodes, 0
	}
	costs := r.costs()
	order := ring.Order(costs)
	for _, at := range order {
		nodes = append(nodes, r.nodes[at])
	}
	return nodes, 2 * float64(len(r.nodes)-1) * costs.Worst(order)
}

// Ring is the order in which some nodes reduce so many bytes of gradients. If links leave a choice, they stay as the situation
// has them.
func (s Situation) Ring(names []string, bytes int64) []string {
	isIn := make(map[string]bool, len(names))
	for _, name := range names {
		isIn[name] = true
	}
	var nodes []int
	for node, name := range s.Nodes {
		if isIn[name] {
			nodes = append(nodes, node)
		}
	}
	nodes, _ = s.reducing(nodes, bytes).order()
	ordered := make([]string, len(nodes))
	for i, node := range nodes {
		ordered[i] = s.Nodes[node]
	}
	return ordered
}
