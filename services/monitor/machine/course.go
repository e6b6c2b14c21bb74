package machine

import (
	"cmp"
	"slices"

	"github.com/reknit/reknit/events"
)

// Uses tells the machine the plan in force: its links are measured before all others. It is told again after a restart.
func (m *Machine) Uses(plan *events.Plan) {
	m.using, m.used, m.usedSince = used(plan), nil, 0
}

// used returns the directions that the traffic of a plan takes, each once: between neighbours of a pipeline, also where a node stands in
// for a lost one, and around each group of an all-reduce. They are at most four times the nodes if each node is in one pipeline and one
// group. A node that waits for its links uses those to two who train, or nobody would soon see that they are good.
func used(plan *events.Plan) []direction {
	var ways []direction
	use := func(a, b string) { ways = append(ways, direction{a, b}, direction{b, a}) }
	for _, hop := range plan.Hops() {
		use(hop.A, hop.B)
	}
	for _, round := range plan.Sync.Rounds {
		for _, group := range round.Groups {
			for i, node := range group.Nodes[:max(0, len(group.Nodes)-1)] {
				use(node, group.Nodes[i+1])
			}
			if len(group.Nodes) > 2 {
				use(group.Nodes[len(group.Nodes)-1], group.Nodes[0])
			}
		}
	}
	for i, idle := range plan.Idle {
		for peer := range min(2, len(plan.Pipelines)) {
			use(idle.Node, plan.Pipelines[(i+peer)%len(plan.Pipelines)].Stages[0].Node)
		}
	}
	slices.SortFunc(ways, compareDirections)
	return slices.Compact(ways)
}

// Three of four probes are for the links that the plan uses, and the fourth is for all other links. The used links have
// a round of their own. It takes 5 min with 1,000 nodes, and twice that while links are lost, because every second
// probe is then for a lost link.
const shareOfOthers = 4

// nextUsed returns the next direction that the plan uses, those that were not measured for the longest time first, and those that were
// never measured before them. A direction that a neighbour's probe, a negotiation or a transfer has measured since the round began is not
// measured again. O(1) but for the first of a round, O(n log n).
func (m *Machine) nextUsed(now float64) (direction, bool) {
	if m.turn++; m.turn%shareOfOthers == 0 {
		return direction{}, false
	}
	if len(m.used) == 0 && (m.usedSince == 0 || now-m.usedSince >= m.settings.LinkSeconds) {
		m.used, m.usedSince = slices.Clone(m.using), now
		age := func(way direction) float64 {
			if at, measured := m.measuredAt[way]; measured {
				return now - at
			}
			return now + 1
		}
		slices.SortStableFunc(m.used, func(a, b direction) int { return cmp.Compare(age(b), age(a)) })
	}
	for len(m.used) > 0 {
		way := m.used[0]
		m.used = m.used[1:]
		at, measured := m.measuredAt[way]
		if fresh := measured && at >= m.usedSince; !fresh && m.well(way.from) && m.well(way.to) && !m.disconnected(way.pair()) {
			return way, true
		}
	}
	return direction{}, false
}
