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
}

// mostPaces bounds how many groups of nodes are weighed.
const mostPaces = 16

// withoutSlow are the nodes whose links are worth waiting for in each step, all where that is so: as many as possible of
// those groups in which each node has two links that are no slower than some pace, and so reaches all others.
//
// A node that joins may make a step Slowdown times as long as it is without it. One that trains is left out for a worsening
// beyond that by what measurements scatter, and one that waits comes back where it makes no step longer: so no scatter takes
// a node in and out. A node that holds the last copy of something stays. O(paces * (nodes log nodes + links)), and the rings.
func (s Situation) withoutSlow(nodes []int) []int {
	if s.KeepsAll || len(s.Network.Links)+len(s.Network.Dear) == 0 || s.Network.BytesPerSecond <= 0 {
		return nodes
	}
	groups, fastest := [][]int{nodes}, 0
	steps := []float64{s.stepOf(nodes)}
	for _, group := range s.paced(nodes) {
		if !s.mayDoWith(group, len(nodes)) {
			continue
		}
		groups, steps = append(groups, group), append(steps, s.stepOf(group))
		if last := len(steps) - 1; steps[last] < steps[fastest] {
			fastest = last
		}
	}
	usual := s // with links that are all alike, of which nobody is to wait for being one more
	usual.Network.Links, usual.Network.Dear = nil, nil
	for g, group := range groups { // the largest first
		if allowed := s.allowed(group, groups[fastest]); steps[g] <= allowed*max(steps[fastest], usual.stepOf(group)) {
			return group
		}
	}
	return groups[fastest]
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
// other over such links: those of slow paces first, which are larger.
func (s Situation) paced(nodes []int) [][]int {
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
			idle = Idle{"", s.stepOf(append(slices.Clone(placed), node)), s.needs(node, placed, kind.LatencySeconds, step)}
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
		link := w.network.usual()
		there, is := w.unusual[[2]int{node, other}]
		back, isToo := w.unusual[[2]int{other, node}]
		if is && isToo && r.seconds(back) > r.seconds(there) || isToo && !is {
			there = back
		}
		if is || isToo {
			link = Link{LatencySeconds: there.LatencySeconds, BytesPerSecond: there.BytesPerSecond}
		}
		best = append(best, link)
		slices.SortStableFunc(best, func(a, b Link) int { return cmp.Compare(r.seconds(a), r.seconds(b)) })
		best = best[:min(len(best), 2)]
	}
	return best[len(best)-1]
}

// needs is the bandwidth that a node's two links need for a step with it to be as short as so many seconds.
func (s Situation) needs(node int, placed []int, latencySeconds, seconds float64) float64 {
	nodes := append(slices.Clone(placed), node)
	begun := 0.0 // when the all-reduce may begin
	for _, pipeline := range s.replicasOf(nodes) {
		timed := s.pipeline(s.wires(), pipeline)
		begun = max(begun, float64(pipeline.MicroBatches)*(timed.ForwardSeconds[0]+timed.BackwardSeconds[0])-timed.BackwardSeconds[0])
	}
	message := (seconds-begun)/(2*float64(len(nodes)-1)) - latencySeconds
	if message <= 0 {
		return 0
	}
	return float64(sum(s.GradientBytes)) / float64(len(nodes)) / message
}

func setOf(nodes []int) map[int]bool {
	set := make(map[int]bool, len(nodes))
	for _, node := range nodes {
		set[node] = true
	}
	return set
}
