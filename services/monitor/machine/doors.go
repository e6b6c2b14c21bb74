package machine

import (
	"fmt"
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

// Pulse takes a heartbeat.
func (m *Machine) Pulse(pulse events.Pulse, at time.Time) []events.Event {
	now := seconds(at)
	known := m.state.Nodes[pulse.Node]
	if known == nil || known.Incarnation != pulse.Incarnation {
		return nil
	}
	counted, cleared := m.detector.Signal(now, detect.Signal{Node: pulse.Node, Incarnation: pulse.Incarnation, Number: pulse.Number})
	if counted {
		known.Number, known.Suspected, known.gone = pulse.Number, false, 0
	}
	for _, suspicion := range pulse.Suspicions {
		m.suspicion(now, pulse.Node, suspicion)
	}
	if !cleared {
		return nil
	}
	return []events.Event{m.sayNode(at, events.NodeCleared, pulse.Node, known, "heartbeats again", 0)}
}

// suspicion takes a node's report about a peer. Whether the peer or the link between them is at fault is seen by
// asking the peer at once, on the path over the hub.
func (m *Machine) suspicion(now float64, reporter string, suspicion events.Suspicion) {
	if m.state.Nodes[suspicion.Node] == nil || suspicion.Node == reporter {
		return
	}
	pair := events.PairOf(reporter, suspicion.Node)
	if m.reports[pair] == nil {
		m.reports[pair] = detect.Reports{}
	}
	m.reports[pair][reporter] = now
	if suspicion.Refused {
		m.detector.Reset(now, suspicion.Node)
	}
	m.ask(now, Ask{Node: suspicion.Node})
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
	if ask.Target != "" {
		return m.linkProbed(ask, answer, at)
	}
	now := seconds(at)
	if gone {
		verdict, lost := m.detector.Gone(now, ask.Node)
		if lost || m.vanished(now, known) {
			verdict.Node = ask.Node
			return m.lose(at, verdict)
		}
		return nil
	}
	known.gone = 0
	if answer != nil {
		m.detector.Answered(now, ask.Node)
		m.askLinks(now, ask.Node)
	}
	return nil
}

// vanished reports whether a joining node is gone for good. No peer trains with it yet who could report it, so the hub's
// word must do, twice: right after a restart the hub knows nobody.
func (m *Machine) vanished(now float64, known *node) bool {
	if known.gone == 0 {
		known.gone = now
	}
	return !known.Active && now-known.gone >= askAgainSeconds
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

// Tick tells the machine the time.
func (m *Machine) Tick(at time.Time) []events.Event {
	now := seconds(at)
	if m.ticked > 0 {
		m.state.Rate.Seconds += float64(m.detector.Watched()) * max(0, now-m.ticked)
		m.state.Returns.Pass(max(0, now-m.ticked))
	}
	m.ticked = now
	var said []events.Event
	for _, verdict := range m.detector.Tick(now) {
		if verdict.State == detect.Lost {
			said = append(said, m.lose(at, verdict)...)
			continue
		}
		known := m.state.Nodes[verdict.Node]
		known.Suspected = true
		said = append(said, m.sayNode(at, events.NodeSuspected, verdict.Node, known, "no heartbeat", verdict.SilentSeconds))
	}
	m.askSuspected(now)
	m.askNextLink(now)
	return said
}

func (m *Machine) askSuspected(now float64) {
	for _, name := range slices.Sorted(maps.Keys(m.state.Nodes)) {
		known := m.state.Nodes[name]
		joins := !known.Active // others wait for it, and nobody but us would notice that it is gone
		if (known.Suspected || joins) && now-known.asked >= askAgainSeconds {
			known.asked = now
			m.ask(now, Ask{Node: name})
		}
	}
}

// lose says that a node is lost, once an incarnation, and forgets it.
func (m *Machine) lose(at time.Time, verdict detect.Verdict) []events.Event {
	known := m.state.Nodes[verdict.Node]
	m.state.Rate.Failures++
	reason := "no heartbeat"
	switch {
	case !known.Active && !verdict.Evidence && verdict.SilentSeconds < askAgainSeconds:
		reason = "nobody answers at the hub"
	case verdict.Evidence:
		reason = fmt.Sprintf("%s reported a reset connection and nobody answers at the hub", m.reporters(verdict.Node, seconds(at)))
	}
	lost := m.speaker.First(at, known.Incarnation, events.NodeLost, verdict.Node,
		m.nodeState(verdict.Node, known, reason, verdict.SilentSeconds))
	m.state.Returns.Lost(verdict.Node)
	m.forget(verdict.Node)
	return []events.Event{lost}
}

// reporters names who reported a node lately.
func (m *Machine) reporters(target string, now float64) string {
	names := ""
	for _, reporter := range slices.Sorted(maps.Keys(m.state.Nodes)) {
		if at, ok := m.reports[events.PairOf(reporter, target)][reporter]; ok && now-at <= reportSeconds && len(names) < 512 {
			if names != "" {
				names += ", "
			}
			names += reporter
		}
	}
	return names
}

// sayNode says a fact that a silence or its end brought about: the last heartbeat takes the cause's place in its id.
func (m *Machine) sayNode(at time.Time, kind events.Kind, name string, known *node, reason string, silent float64) events.Event {
	return m.speaker.First(at, beat(known), kind, name, m.nodeState(name, known, reason, silent))
}

// beat names a node's last heartbeat.
func beat(known *node) string { return fmt.Sprintf("%s.%d", known.Incarnation, known.Number) }

func (m *Machine) nodeState(name string, known *node, reason string, silent float64) *events.NodeState {
	return &events.NodeState{
		Node: name, Incarnation: known.Incarnation, Reason: reason, SilentSeconds: silent,
		FailuresPerNodeSecond: m.state.Rate.PerNodeSecond(), SecondsUntilReturn: m.state.Returns.MeanSeconds(),
	}
}
