package machine

import (
	"cmp"
	"slices"

	"github.com/reknit/reknit/events"
)

// course is where the traffic of a plan goes: what the monitor keeps of it.
type course struct {
	Negotiation string     `json:"negotiation"` // that it came of
	Chains      [][]string `json:"chains"`      // pipelines, also with who stands in for a lost node: each passes on to the next and back
	Rings       [][]string `json:"rings"`       // groups of an all-reduce: each node and the next, and the last and the first
}

// courseOf returns where the traffic of a plan goes. Groups of the same nodes, for other layers, count once.
func courseOf(restoration *events.Restoration) *course {
	c := &course{Negotiation: restoration.Negotiation}
	for _, pipeline := range restoration.Plan.Pipelines {
		var chain []string
		for _, stage := range pipeline.Stages {
			chain = append(chain, stage.Node)
		}
		if len(chain) < 2 {
			continue
		}
		c.Chains = append(c.Chains, chain)
		for _, reroute := range restoration.Plan.Reroutes {
			if at := slices.Index(chain, reroute.From); at >= 0 {
				around := slices.Clone(chain)
				around[at] = reroute.To
				c.Chains = append(c.Chains, around)
			}
		}
	}
	for _, round := range restoration.Plan.Sync.Rounds {
		for _, group := range round.Groups {
			if len(group.Nodes) > 1 {
				c.Rings = append(c.Rings, group.Nodes)
			}
		}
	}
	slices.SortFunc(c.Rings, slices.Compare)
	c.Rings = slices.CompactFunc(c.Rings, slices.Equal)
	return c
}

// ways are the directions that the traffic takes, each once. Where a node is in one pipeline and one group they are at
// most four times the nodes.
func (c *course) ways() []direction {
	if c == nil {
		return nil
	}
	var ways []direction
	use := func(a, b string) { ways = append(ways, direction{a, b}, direction{b, a}) }
	for _, chain := range c.Chains {
		for i := range chain[1:] {
			use(chain[i], chain[i+1])
		}
	}
	for _, ring := range c.Rings {
		for i, node := range ring {
			use(node, ring[(i+1)%len(ring)])
		}
	}
	slices.SortFunc(ways, compareDirections)
	return slices.Compact(ways)
}

// restored keeps what a negotiation means to commit.
func (m *Machine) restored(_ events.Event, restoration events.Restoration) []events.Event {
	m.state.Next = courseOf(&restoration)
	return nil
}

// takesCourse has the links of the plan that a negotiation committed measured before all others.
func (m *Machine) takesCourse(negotiation string) {
	if next := m.state.Next; next != nil && next.Negotiation == negotiation {
		m.state.Course, m.state.Next, m.used, m.usedSince = next, nil, nil, 0
	}
}

// Of four probes three are for the links that the plan uses: in a round of its own, of 5 min with 1,000 nodes, and of
// twice that while links are lost, which every second probe is for. The fourth is for all other links.
const shareOfOthers = 4

// nextUsed returns the next direction that the plan uses, those that were not measured for the longest time first, and
// those that were never measured before them. What a neighbour's probe, a consent or a transfer has measured since the
// round began is not measured again. O(1) but for the first of a round, O(n log n).
func (m *Machine) nextUsed(now float64) (direction, bool) {
	if m.turn++; m.turn%shareOfOthers == 0 {
		return direction{}, false
	}
	if len(m.used) == 0 && (m.usedSince == 0 || now-m.usedSince >= m.settings.LinkSeconds) {
		m.used, m.usedSince = m.state.Course.ways(), now
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
