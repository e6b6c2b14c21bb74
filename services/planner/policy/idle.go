package policy

import (
	"cmp"
	"slices"
)

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

// idle tells of each node that might train but has no place what a step would take with it, put where it costs the ring of the others
// least, and what it would need. O(links + idle nodes * placed ones), and placed nodes * layers for each speed of idle ones.
func (s Situation) idle(w wires, able []int, placed ringed) (all []Idle) {
	if len(able) == len(placed.nodes) {
		return nil
	}
	r := s.reducing(able, sum(s.GradientBytes))
	r.parts = len(placed.nodes) + 1
	costs, in, order := r.costs(), setOf(placed.nodes), make([]int, len(placed.order))
	for i, node := range placed.order {
		order[i] = r.at[node]
	}
	usual := s.alike(w, placed, r.parts).Network.BytesPerSecond
	with := map[float64]computed{} // by the speed of the one that waits
	for at, node := range able {
		if in[node] {
			continue
		}
		c, known := with[s.speed(node)]
		if !known {
			c = s.computed(w, s.replicasOf(append(slices.Clone(placed.nodes), node)))
			with[s.speed(node)] = c
		}
		messages := 2 * float64(len(placed.nodes))
		idle := Idle{Node: s.Nodes[node], StepSeconds: c.overlapped(messages * costs.WorstWith(order, at))}
		message := (placed.stepSeconds - c.begunSeconds) / messages
		idle.NeedsBytesPerSecond, idle.NeedsRoundTripSeconds = r.needs(message, r.secondLink(w, node, placed.nodes), asUsual*usual)
		all = append(all, idle)
	}
	return all
}

// correctedIdle is what idle nodes would cost, as steps are expected to take.
func (s Situation) correctedIdle(all []Idle) []Idle {
	all = slices.Clone(all)
	for i := range all {
		all[i].StepSeconds = all[i].StepSeconds*s.corrected() + s.OverheadSeconds // it would train beside others
	}
	return all
}

// secondLink is the second best of a node's links to some others, of the worse direction each: a ring takes two. O(others).
func (r reducing) secondLink(w wires, node int, others []int) Link {
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
	there, is := w.link(node, other)
	back, isToo := w.link(other, node)
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

// needs is the bandwidth that a node's two links need for a message to take no longer than so many seconds, and no more than what is
// enough anyway. If none suffices with the delay of its links, it is the round trip that they need with the usual bandwidth. Zero is none.
func (r reducing) needs(message float64, second Link, enough float64) (bytesPerSecond, roundTripSeconds float64) {
	part := float64(r.bytes) / float64(r.parts)
	if message > second.LatencySeconds {
		return min(part/(message-second.LatencySeconds), enough), 0
	}
	return 0, max(0, 2*(message-part/r.network.BytesPerSecond))
}
