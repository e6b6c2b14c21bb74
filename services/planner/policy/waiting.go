package policy

import (
	"cmp"
	"math"
	"slices"

	"github.com/reknit/reknit/services/planner/estimate"
	"github.com/reknit/reknit/services/planner/search"
)

// UsualSlowdown is how many times as long a step may take for a node that joins.
const UsualSlowdown = 1.05

// Idle is a node that has no place, because the step would take longer with it than without.
type Idle struct {
	Node        string
	StepSeconds float64 // with it
	// NeedsBytesPerSecond is the bandwidth of two links to others, both ways, from which it would slow nothing down; zero where
	// none is enough, for the links' delay.
	NeedsBytesPerSecond float64
	// NeedsRoundTripSeconds is told in place of it: the round trip of two usual links from which it would; zero where none is.
	NeedsRoundTripSeconds float64
}

// mostPaces bounds how many groups of nodes are weighed.
const mostPaces = 16

// withoutSlow are the nodes whose links are worth waiting for in each step, all where that is so: as many as possible of
// those groups in which each node has two links that are no slower than some pace, and so reaches all others.
//
// A node that joins may make a step Slowdown times as long as it is without it. One that trains is left out for a worsening
// beyond that by what measurements scatter, and one that waits comes back where it makes no step longer: so no scatter takes
// a node in and out. A node that holds the last copy of something stays, and so does one that is not to blame. Links that were probed
// once count as usual. O(paces * (nodes log nodes + links)), and the rings.
func (s Situation) withoutSlow(nodes []int) []int {
	s = s.sure()
	if s.KeepsAll || len(s.Network.Links)+len(s.Network.Dear) == 0 || s.Network.BytesPerSecond <= 0 {
		return nodes
	}
	blamed := s.blamed()
	groups, fastest := [][]int{nodes}, 0
	steps := []float64{s.stepOf(nodes)}
	for _, group := range s.paced(nodes, blamed) {
		if !s.mayDoWith(group, len(nodes)) || !s.isFast(group, len(nodes)) && !blamed.all(nodes, group) {
			continue
		}
		groups, steps = append(groups, group), append(steps, s.stepOf(group))
		if last := len(steps) - 1; steps[last] < steps[fastest] {
			fastest = last
		}
	}
	usual := s.alike(groups[fastest], len(nodes))
	for g, group := range groups { // the largest first
		if allowed := s.allowed(group, groups[fastest]); steps[g] <= allowed*max(steps[fastest], usual.stepOf(group)) {
			return group
		}
	}
	return groups[fastest]
}

// sure is the situation without links that were probed once: nobody waits for these. A single probe of one loopback device read a
// thousandth of what it carries.
func (s Situation) sure() Situation {
	s.Network.Links = slices.DeleteFunc(slices.Clone(s.Network.Links), func(link Link) bool { return link.Unsure })
	return s
}

// alike is the situation with links that are all as usual, of which nobody is to wait for being one more; or as those over which
// a group reduces that is more than half of so many nodes, where these are faster: of three nodes one with slow links has most links
// be slow.
func (s Situation) alike(group []int, of int) Situation {
	w, r := s.wires(), s.reducing(group, sum(s.GradientBytes))
	s.Network.Links, s.Network.Dear = nil, nil
	if len(group) < 2 || 2*len(group) <= of || len(r.network.Dear) > 0 {
		return s
	}
	order, _ := r.order()
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
func (s Situation) isFast(group []int, of int) bool {
	return s.alike(group, of).Network.isFasterThan(s.Network)
}

func (n Network) isFasterThan(other Network) bool {
	return n.BytesPerSecond > other.BytesPerSecond || n.LatencySeconds < other.LatencySeconds
}

// blame is by node who says that links to it are slow, itself among them where it says so of its own.
type blame map[int]map[int]bool

// blamed tells whose links are slower than usual. Each end of a link measures its own direction of it.
func (s Situation) blamed() blame {
	told := blame{}
	tell := func(node, teller int) {
		if told[node] == nil {
			told[node] = map[int]bool{}
		}
		told[node][teller] = true
	}
	for _, link := range s.Network.Links {
		if s.Network.isFasterThan(Network{BytesPerSecond: link.BytesPerSecond, LatencySeconds: link.LatencySeconds}) {
			tell(link.From, link.From)
			tell(link.To, link.From)
		}
	}
	for _, pair := range s.Network.Dear {
		tell(pair[0], pair[0])
		tell(pair[1], pair[1])
	}
	return told
}

// of is how much a node is to blame: 2 or more where it says itself that its links are slow, or two others do. The word of one
// other is not enough: who says that a link from it is slow would have the other end wait for good.
func (b blame) of(node int) int {
	if b[node][node] {
		return 1 + len(b[node])
	}
	return len(b[node])
}

// all reports whether each of the nodes that are not in a group is to blame.
func (b blame) all(nodes, group []int) bool {
	in := setOf(group)
	return !slices.ContainsFunc(nodes, func(node int) bool { return !in[node] && b.of(node) < 2 })
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
// other over such links: those of slow paces first, which are larger. Where several are as large, who is to blame is not in it.
func (s Situation) paced(nodes []int, blamed blame) [][]int {
	nodes = slices.SortedStableFunc(slices.Values(nodes), func(a, b int) int { return cmp.Compare(blamed.of(a), blamed.of(b)) })
	r := s.reducing(nodes, sum(s.GradientBytes))
	costs := r.costs()
	var groups [][]int
	for _, pace := range costs.Paces(mostPaces) {
		group := costs.Linked(pace)
		if len(group) == 0 || len(group) == len(nodes) || len(groups) > 0 && len(group) == len(groups[len(groups)-1]) {
			continue
		}
		for i, at := range group {
			group[i] = nodes[at]
		}
		slices.Sort(group)
		groups = append(groups, group)
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

// idle tells of each node that might train but has no place what it would cost and need.
func (s Situation) idle(able, placed []int) (all []Idle) {
	in := setOf(placed)
	with, step := map[Link]Idle{}, s.stepOf(placed) // by what tells idle nodes apart
	for _, node := range able {
		if in[node] {
			continue
		}
		kind := s.secondLink(node, placed)
		kind.From, kind.To = 0, int(math.Float64bits(s.speed(node))>>1)
		idle, known := with[kind]
		if !known {
			idle = Idle{StepSeconds: s.stepOf(append(slices.Clone(placed), node))}
			idle.NeedsBytesPerSecond, idle.NeedsRoundTripSeconds = s.needs(node, placed, kind.LatencySeconds, step)
			with[kind] = idle
		}
		idle.Node = s.Nodes[node]
		all = append(all, idle)
	}
	return all
}

// correctedIdle is what idle nodes would cost, as steps are expected to take.
func (s Situation) correctedIdle(all []Idle) []Idle {
	all = slices.Clone(all)
	for i := range all {
		all[i].StepSeconds *= s.corrected()
	}
	return all
}

// secondLink is the second best of a node's links to some others, of the worse direction each: a ring takes two.
func (s Situation) secondLink(node int, others []int) Link {
	r, w := s.reducing(append(slices.Clone(others), node), sum(s.GradientBytes)), s.wires()
	var best []Link
	for _, other := range others {
		best = append(best, r.worse(w, node, other))
		slices.SortStableFunc(best, func(a, b Link) int { return cmp.Compare(r.seconds(a), r.seconds(b)) })
		best = best[:min(len(best), 2)]
	}
	return best[len(best)-1]
}

// worse is the link of two nodes in its worse direction, without its ends.
func (r reducing) worse(w wires, node, other int) Link {
	there, is := w.unusual[[2]int{node, other}]
	back, isToo := w.unusual[[2]int{other, node}]
	switch {
	case !is && !isToo:
		return w.network.usual()
	case is && isToo && r.seconds(back) > r.seconds(there) || !is:
		there = back
	}
	return Link{LatencySeconds: there.LatencySeconds, BytesPerSecond: there.BytesPerSecond}
}

// asUsual is the share of what links usually carry, among those who train, of which no more is needed: who measures a link often
// tells no smaller difference.
const asUsual = 0.8

// needs is the bandwidth that a node's two links need for a step with it to be as short as so many seconds, or, where none is
// enough, the round trip that they need with the usual bandwidth. Zero is none.
func (s Situation) needs(node int, placed []int, latencySeconds, seconds float64) (bytesPerSecond, roundTripSeconds float64) {
	nodes := append(slices.Clone(placed), node)
	begun := 0.0 // when the all-reduce may begin
	for _, pipeline := range s.replicasOf(nodes) {
		timed := s.pipeline(s.wires(), pipeline)
		begun = max(begun, float64(pipeline.MicroBatches)*(timed.ForwardSeconds[0]+timed.BackwardSeconds[0])-timed.BackwardSeconds[0])
	}
	message := (seconds - begun) / (2 * float64(len(nodes)-1))
	part := float64(sum(s.GradientBytes)) / float64(len(nodes))
	if message > latencySeconds {
		return min(part/(message-latencySeconds), asUsual*s.alike(placed, len(nodes)).Network.BytesPerSecond), 0
	}
	return 0, max(0, 2*(message-part/s.Network.BytesPerSecond))
}

func setOf(nodes []int) map[int]bool {
	set := make(map[int]bool, len(nodes))
	for _, node := range nodes {
		set[node] = true
	}
	return set
}
