package machine

import (
	"cmp"
	"slices"
)

// confirmations are how many probes make what a negotiation told of a link known: nobody acts on what was measured once, while all of a
// joiner's links were measured at a time.
const confirmations = 2

// Links are confirmed in rounds, so many in the time between two probes of a few nodes: a round of its own for each probe that a node
// sends or takes. 16 others than a joiner take 32 rounds so, 8 s, in which it sends and takes 1 MiB a second, and each of them 64 KiB.
const roundsPerProbe = 4

// A round has so many probes, or one for so many nodes where that is more: any number of nodes that start at once, each with links to
// eight others, takes about a minute, and the log as long to take what comes of it.
const (
	leastPerRound = 8
	nodesPerRound = 16
)

// confirmation is how often a direction is still to be measured that a negotiation told of.
type confirmation struct {
	From string `json:"from"`
	To   string `json:"to"`
	Left int    `json:"left"`
}

func (c confirmation) way() direction { return direction{c.From, c.To} }

// unconfirmed are the directions that negotiations told of, in their order, until they were measured.
type unconfirmed []confirmation

func (u unconfirmed) find(way direction) (i int, known bool) {
	return slices.BinarySearchFunc(u, way, func(c confirmation, way direction) int { return compareDirections(c.way(), way) })
}

// add has directions measured, those that wait for it already, too. O((ways + those that wait) log).
func (u *unconfirmed) add(ways []direction) {
	told := make(unconfirmed, len(ways), len(ways)+len(*u))
	for i, way := range ways {
		told[i] = confirmation{way.from, way.to, confirmations}
	}
	all := append(told, *u...)
	slices.SortFunc(all, func(a, b confirmation) int {
		return cmp.Or(compareDirections(a.way(), b.way()), cmp.Compare(b.Left, a.Left))
	})
	*u = slices.CompactFunc(all, func(a, b confirmation) bool { return a.way() == b.way() })
}

// measured counts a probe of a direction, whoever wanted it and however it went. O(those that wait).
func (u *unconfirmed) measured(way direction) {
	i, waits := u.find(way)
	if !waits {
		return
	}
	if (*u)[i].Left--; (*u)[i].Left <= 0 {
		*u = slices.Delete(*u, i, i+1)
	}
}

// forget removes those of a node. O(those that wait).
func (u *unconfirmed) forget(node string) {
	*u = slices.DeleteFunc(*u, func(c confirmation) bool { return c.From == node || c.To == node })
}

// confirm wants what negotiations told of measured again, once the plan has both ends of it: a round of probes of which no two leave
// one node or reach one, nor does one that another probe does. Two that share a node's way would each see half of it. It begins behind
// the last of the round before. O(those that wait + probes under way).
func (m *Machine) confirm(now float64) {
	if m.settings.LinkSeconds <= 0 || now < m.nextConfirm || len(m.state.Unconfirmed) == 0 {
		return
	}
	round := m.settings.LinkSeconds / roundsPerProbe
	m.nextConfirm = max(m.nextConfirm, now-round) + round
	waiting, busy := m.state.Unconfirmed, m.busyWays(now)
	first, waits := waiting.find(m.confirmed)
	if waits {
		first++
	}
	left := max(leastPerRound, len(m.state.Nodes)/nodesPerRound)
	for i := range waiting {
		way := waiting[(first+i)%len(waiting)].way()
		if busy.has(way) || !m.well(way.from) || !m.well(way.to) || m.disconnected(way.pair()) {
			continue
		}
		busy.take(way)
		m.askLink(now, way)
		if m.confirmed, left = way, left-1; left == 0 {
			return
		}
	}
}

// ways are the nodes whose way out or in a probe takes.
type ways struct{ out, in map[string]bool }

func (w ways) has(way direction) bool { return w.out[way.from] || w.in[way.to] }

func (w ways) take(way direction) { w.out[way.from], w.in[way.to] = true, true }

// busyWays are those that measurements under way take. O(probes under way).
func (m *Machine) busyWays(now float64) ways {
	busy := ways{map[string]bool{}, map[string]bool{}}
	for ask, at := range m.asked {
		if ask.Bytes > 0 && now-at < giveUpSeconds {
			busy.take(direction{ask.Node, ask.Target})
		}
	}
	return busy
}
