package machine

import (
	"maps"
	"slices"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/detect"
)

// Ask is a probe that the machine wants sent: without a target a sign of life, with one a measurement of the link.
type Ask struct {
	Node    string
	Target  string
	Address string // of the target's data plane
	Bytes   int    // zero measures the round trip only
}

const (
	askAgainSeconds = 1  // a node that is suspected or joins is asked so often
	reportSeconds   = 10 // a report about a link is evidence for so long
	giveUpSeconds   = 30 // after so long without Probed an ask counts as unanswered
)

// Asks returns the probes wanted since the last call. Each is to be answered by one call of Probed.
func (m *Machine) Asks() []Ask {
	asks := m.asks
	m.asks = nil
	return asks
}

// ask wants a probe unless the same one is under way. The number of asks is bounded by the nodes and their pairs.
func (m *Machine) ask(now float64, ask Ask) {
	if at, underWay := m.asked[ask]; underWay && now-at < giveUpSeconds {
		return
	}
	m.asked[ask] = now
	m.asks = append(m.asks, ask)
}

// Probed takes the outcome of an ask: an answer, or nil for none in time; gone when the hub has nobody to ask.
func (m *Machine) Probed(ask Ask, answer *events.ProbeAnswer, gone bool, at time.Time) []events.Event {
	delete(m.asked, ask)
	known := m.state.Nodes[ask.Node]
	if known == nil {
		return nil
	}
	if answer != nil && answer.Incarnation != known.Incarnation {
		answer, gone = nil, true // another process answers for it
	}
	now := m.clock.seconds(at)
	switch {
	case ask.Target != "" && m.detector.State(ask.Target) == detect.Suspected:
		m.testified(now, ask, answer)
		return nil
	case ask.Target != "":
		return m.linkProbed(ask, answer, at)
	}
	if gone {
		verdict, lost := m.detector.Gone(now, ask.Node)
		if lost || m.vanished(now, known) {
			verdict.Node = ask.Node
			return m.lose(at, verdict)
		}
		return nil
	}
	known.gone = nil
	if answer != nil {
		m.detector.Answered(now, ask.Node)
		m.askLinks(now, ask.Node)
	}
	return nil
}

// vanished reports whether a joining node is gone for good. No peer trains with it yet who could report it, so the
// hub's word must do, twice: right after a restart the hub knows nobody.
func (m *Machine) vanished(now float64, known *node) bool {
	if known.gone == nil {
		known.gone = &now
	}
	return !known.Active && now-*known.gone >= askAgainSeconds
}

// askLinks has those who reported a node that turned out to live try the link to it.
func (m *Machine) askLinks(now float64, target string) {
	for _, reporter := range slices.Sorted(maps.Keys(m.state.Nodes)) {
		pair := events.PairOf(reporter, target)
		reported, ok := m.reports[pair][reporter]
		if ok && now-reported <= reportSeconds && !m.disconnected(pair) {
			m.ask(now, Ask{Node: reporter, Target: target, Address: m.state.Nodes[target].Address})
		}
	}
}

// askSilent asks suspected nodes and those that join for a sign of life, and witnesses for the suspected.
func (m *Machine) askSilent(now float64) {
	var due []string
	for name, known := range m.state.Nodes {
		joins := !known.Active // others wait for it, and nobody but us would notice that it is gone
		if (known.Suspected || joins) && now-known.asked >= askAgainSeconds {
			due = append(due, name)
		}
	}
	slices.Sort(due)
	for _, name := range due {
		m.state.Nodes[name].asked = now
		m.ask(now, Ask{Node: name})
	}
	m.askWitnesses(now, m.nextTried(now))
}
