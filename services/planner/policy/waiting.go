package policy

import (
	"cmp"
	"slices"

	"github.com/reknit/reknit/services/planner/estimate"
	"github.com/reknit/reknit/services/planner/search"
)

// UsualSlowdown is how many times as long a step may take for a node that joins.
const UsualSlowdown = 1.05

// mostPaces bounds how many groups of nodes are weighed.
const mostPaces = 16

// withoutSlow are the nodes whose links are worth waiting for in each step, all where that is so: as many as possible of
// those groups in which each node has two links that are no slower than some pace, and so reaches all others.
//
// A node that joins may make a step Slowdown times as long as it is without it. One that trains is left out for a worsening
// beyond that by what measurements scatter, and one that waits comes back where it makes no step longer: so no scatter takes
// a node in and out. A node that holds the last copy of something stays, and so does one that is not to blame. Links that were probed
// once count as usual. O(paces * (nodes * (layers + sites) + links)), the rings, and what idle takes.
func (s Situation) withoutSlow(nodes []int) (placed []int, waiting []Idle) {
	s = s.sure()
	if s.KeepsAll || s.Network.isAlike() || s.Network.BytesPerSecond <= 0 {
		return nodes, nil
	}
	w, blamed := s.wires(), s.blamed()
	all := s.ringed(w, nodes)
	groups, fastest := []ringed{all}, all
	for _, some := range s.paced(nodes, blamed) {
		if !s.mayDoWith(some, len(nodes)) {
			continue
		}
		group := s.ringed(w, some)
		if !blamed.all(nodes, some) && !s.isFast(w, group, len(nodes)) {
			continue
		}
		if groups = append(groups, group); group.stepSeconds < fastest.stepSeconds {
			fastest = group
		}
	}
	usual, chosen := s.alike(w, fastest, len(nodes)), fastest
	for _, group := range groups { // the largest first
		allowed := s.allowed(group.nodes, fastest.nodes)
		if group.stepSeconds <= allowed*max(fastest.stepSeconds, usual.stepOf(group.nodes)) {
			chosen = group
			break
		}
	}
	return chosen.nodes, s.idle(w, nodes, chosen)
}

// ringed is some nodes, in their order and in that of their ring, and their step.
type ringed struct {
	nodes, order []int
	stepSeconds  float64
}

func (s Situation) ringed(w wires, nodes []int) ringed {
	order, around := s.reducing(nodes, sum(s.GradientBytes)).order()
	return ringed{nodes, order, s.computed(w, s.replicasOf(nodes)).overlapped(around)}
}

// sure is the situation without links that were probed once: nobody waits for these. A single probe of one loopback device read a
// thousandth of what it carries.
func (s Situation) sure() Situation {
	isUnsure := func(link Link) bool { return link.Unsure }
	s.Network.Links = slices.DeleteFunc(slices.Clone(s.Network.Links), isUnsure)
	s.Network.SiteLinks = slices.DeleteFunc(slices.Clone(s.Network.SiteLinks), isUnsure)
	return s
}

// alike is the situation with links that are all as usual, of which nobody is to wait for being one more; or as those over which
// a group reduces that is more than half of so many nodes, where these are faster: of three nodes one with slow links has most links
// be slow.
func (s Situation) alike(w wires, group ringed, of int) Situation {
	r, order := s.reducing(group.nodes, sum(s.GradientBytes)), group.order
	s.Network.Links, s.Network.Dear, s.Network.SiteLinks = nil, nil, nil
	if len(order) < 2 || 2*len(order) <= of || len(r.network.Dear) > 0 {
		return s
	}
	slowest := r.worse(w, order[0], order[1])
	for i, node := range order {
		if link := r.worse(w, node, order[(i+1)%len(order)]); r.seconds(link) > r.seconds(slowest) {
			slowest = link
		}
	}
	if r.seconds(slowest) < r.seconds(s.Network.usual()) {
		s.Network.LatencySeconds, s.Network.BytesPerSecond = slowest.LatencySeconds, slowest.BytesPerSecond
	}
	return s
}

// isFast reports whether a group reduces over faster links than are usual among so many nodes.
func (s Situation) isFast(w wires, group ringed, of int) bool {
	return s.alike(w, group, of).Network.isFasterThan(s.Network)
}

func (n Network) isFasterThan(other Network) bool {
	return n.BytesPerSecond > other.BytesPerSecond || n.LatencySeconds < other.LatencySeconds
}

// blame is who says that links are slow.
type blame struct {
	of    map[int]map[int]bool // by node: who says it of links to it, itself among them where it says so of its own
	sites []int                // of each node, where links between sites are known
	at    map[int]siteBlame    // by site, of links that are slow as others between its sites are
}

// siteBlame is how many nodes say that links to a site are slow, and whether its own say so of theirs.
type siteBlame struct {
	others int
	own    bool
}

// blamed tells whose links are slower than usual. Each end of a link measures its own direction of it. O(nodes + links).
func (s Situation) blamed() blame {
	b := blame{map[int]map[int]bool{}, s.Network.Sites, map[int]siteBlame{}}
	tell := func(node, teller int) {
		if b.of[node] == nil {
			b.of[node] = map[int]bool{}
		}
		b.of[node][teller] = true
	}
	isSlow := func(link Link) bool {
		return s.Network.isFasterThan(Network{BytesPerSecond: link.BytesPerSecond, LatencySeconds: link.LatencySeconds})
	}
	for _, link := range s.Network.Links {
		if isSlow(link) {
			tell(link.From, link.From)
			tell(link.To, link.From)
		}
	}
	for _, pair := range s.Network.Dear {
		tell(pair[0], pair[0])
		tell(pair[1], pair[1])
	}
	count := map[int]int{}
	for _, site := range s.Network.Sites {
		count[site]++
	}
	for _, link := range s.Network.SiteLinks {
		if isSlow(link) {
			from, to := b.at[link.From], b.at[link.To]
			from.own, to.others = true, to.others+count[link.From]
			b.at[link.From] = from
			if link.From == link.To {
				to.own, to.others = true, to.others-1
			}
			b.at[link.To] = to
		}
	}
	return b
}

// much is how much a node is to blame: 2 or more where it says itself that its links are slow, or two others do. The word of one
// other is not enough: who says that a link from it is slow would have the other end wait for good.
func (b blame) much(node int) int {
	told, isOwn := len(b.of[node]), b.of[node][node]
	if len(b.at) > 0 {
		site := b.at[b.sites[node]]
		told, isOwn = told+site.others, isOwn || site.own
	}
	if isOwn {
		return 1 + max(1, told)
	}
	return told
}

// all reports whether each of the nodes that are not in a group is to blame.
func (b blame) all(nodes, group []int) bool {
	in := setOf(group)
	return !slices.ContainsFunc(nodes, func(node int) bool { return !in[node] && b.much(node) < 2 })
}

// allowed is how many times as long a step may take with all of a group as with some of them.
func (s Situation) allowed(all, some []int) float64 {
	slowdown := cmp.Or(s.Slowdown, UsualSlowdown)
	allowed, in, trains := 1.0, setOf(some), s.holds()
	for _, node := range all {
		switch {
		case in[node]:
		case trains[node].Len() > 0:
			return slowdown * (1 + worthUnsettling)
		case len(s.Current) == 0 || slices.Contains(s.Empty, s.Nodes[node]):
			allowed = slowdown
		}
	}
	return allowed
}

// mayDoWith reports whether a group is as many replicas as there should be, and keeps all that any of so many nodes holds.
func (s Situation) mayDoWith(group []int, of int) bool {
	if len(group) < max(1, s.DataParallel.Least, min(s.MinReplicas, of)) {
		return false
	}
	need := s.withPipelines(len(group)).peakBytes([]estimate.Range{s.model()}, 1)[0] // the fewer, the more each keeps
	if slices.ContainsFunc(group, func(node int) bool { return s.MemoryBytes[node] < need }) {
		return false
	}
	if len(s.Current) == 0 {
		return true
	}
	live, kept := s.alive(), map[string]bool{}
	for _, name := range s.Empty {
		delete(live, name)
	}
	for _, node := range group {
		kept[s.Nodes[node]] = live[s.Nodes[node]]
	}
	left := s.holders(kept)
	for i, holders := range s.holders(live) {
		if holders > 0 && left[i] == 0 {
			return false
		}
	}
	return true
}

// stepOf is the step of these nodes.
func (s Situation) stepOf(nodes []int) float64 {
	return s.stepSeconds(s.wires(), s.replicasOf(nodes))
}

// replicasOf are the pipelines of one stage that these nodes are, which share the micro-batches by their speed.
func (s Situation) replicasOf(nodes []int) []Pipeline {
	micro := s.microBatchSeconds()
	shares := search.OptimalBatches(s.MicroBatches, len(nodes), func(p, microBatches int) float64 {
		return float64(microBatches) * micro / s.speed(nodes[p])
	})
	pipelines := make([]Pipeline, len(nodes))
	for p, node := range nodes {
		pipelines[p] = Pipeline{MicroBatches: shares[p], Stages: []Stage{{s.Nodes[node], s.model()}}}
	}
	return pipelines
}

// paced returns, for paces that links have, the largest group in which each node has two links at that pace and all reach each
// other over such links: those of slow paces first, which are larger. A group without blamed nodes goes before one as large.
func (s Situation) paced(nodes []int, blamed blame) [][]int {
	nodes = slices.SortedStableFunc(slices.Values(nodes), func(a, b int) int { return cmp.Compare(blamed.much(a), blamed.much(b)) })
	r := s.reducing(nodes, sum(s.GradientBytes))
	costs := r.costs()
	var groups [][]int
	for _, pace := range costs.Paces(mostPaces) {
		group := costs.Linked(pace)
		if len(group) == 0 || len(group) == len(nodes) {
			continue
		}
		for i, at := range group {
			group[i] = nodes[at]
		}
		slices.Sort(group)
		if last := len(groups) - 1; last < 0 || !slices.Equal(group, groups[last]) {
			groups = append(groups, group)
		}
	}
	return append(groups, s.alone(nodes))
}

// alone is the fastest node, of those that hold the model where any does.
func (s Situation) alone(nodes []int) []int {
	holds := s.holds()
	return []int{slices.MinFunc(nodes, func(a, b int) int {
		return cmp.Or(cmp.Compare(holds[b].Len(), holds[a].Len()), cmp.Compare(s.speed(b), s.speed(a)))
	})}
}

func setOf(nodes []int) map[int]bool {
	set := make(map[int]bool, len(nodes))
	for _, node := range nodes {
		set[node] = true
	}
	return set
}
