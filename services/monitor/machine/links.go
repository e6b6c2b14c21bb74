package machine

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/detect"
)

// linkProbed takes how a probe of a link went.
func (m *Machine) linkProbed(ask Ask, answer *events.ProbeAnswer, at time.Time) []events.Event {
	now, way := m.clock.seconds(at), direction{ask.Node, ask.Target}
	if ask.Bytes > 0 {
		m.state.Unconfirmed.measured(way)
	}
	if m.detector.State(way.from) != detect.Green || m.detector.State(way.to) != detect.Green {
		return nil // a node may be at fault; the link is judged between living ones
	}
	pair := way.pair()
	switch outcome := outcomeOf(answer); {
	case outcome == detect.Worked:
		delete(m.reports, pair)
		said := m.restore(pair, at)
		if ask.Bytes > 0 {
			said = append(said, m.measured(way, *answer.Measured, at)...)
		}
		return said
	case !m.lost(pair) && !m.disconnected(pair) && m.reports[pair].Broken(now, reportSeconds, outcome):
		return m.breakLink(pair, answer, at)
	}
	return nil
}

func outcomeOf(answer *events.ProbeAnswer) detect.Outcome {
	switch {
	case answer == nil:
		return detect.Silent
	case answer.Measured == nil:
		return detect.Failed
	}
	return detect.Worked
}

func (m *Machine) breakLink(pair events.Pair, answer *events.ProbeAnswer, at time.Time) []events.Event {
	reason := "both ends report it"
	if answer != nil {
		reason = "reported, and a probe failed: " + events.Shorten(answer.Error, 256)
	}
	m.link(pair).Lost = true
	delete(m.reports, pair)
	return m.sayLink(at, events.LinkLost, pair, reason)
}

func (m *Machine) restore(pair events.Pair, at time.Time) []events.Event {
	if !m.lost(pair) {
		return nil
	}
	m.link(pair).Lost = false
	return m.sayLink(at, events.LinkRestored, pair, "a probe came through")
}

// sayLink says a fact about a link: the last heartbeats of its ends take the cause's place in its id.
func (m *Machine) sayLink(at time.Time, kind events.Kind, pair events.Pair, reason string) []events.Event {
	state := &events.LinkState{From: pair.A, To: pair.B, Reason: reason}
	return []events.Event{m.speaker.First(at, m.beats(pair), kind, linkID(pair.A, pair.B), state)}
}

func (m *Machine) beats(pair events.Pair) string {
	return beat(m.state.Nodes[pair.A]) + " " + beat(m.state.Nodes[pair.B])
}

// measured takes a measurement, and says it when it is the first or differs from what was said.
func (m *Machine) measured(way direction, measured events.Measurement, at time.Time) []events.Event {
	measured.From, measured.To = way.from, way.to
	if measured.Validate() != nil {
		return nil
	}
	m.probed[way], m.measuredAt[way] = m.probed[way].Probed(estimate(measured), m.settings.Untold), m.clock.seconds(at)
	news, significant := m.news(way)
	if !significant {
		return nil
	}
	reason := fmt.Sprint(m.beats(way.pair()), *news) // a link may be measured twice between two heartbeats
	return []events.Event{m.speaker.First(at, reason, events.LinkMeasured, linkID(way.from, way.to), news)}
}

// received takes a receipt for what it proves of the links that it came over. Bytes that came through the hub say
// nothing of a link. A link that nobody has probed has no round trip to tell.
func (m *Machine) received(cause events.Event, receipt events.Receipt) []events.Event {
	var said []events.Event
	for _, source := range receipt.Sources {
		way := direction{source.From, receipt.Node}
		probed := m.probed[way].BytesPerSecond // zero where either end is unknown
		if m.proofs[way].Confirmed(source.Bytes, source.BytesPerSecond, probed, m.settings.Untold.Share) {
			m.measuredAt[way] = m.ticked
			m.prove(way)
		}
		proof, higher := m.proofs[way].Prove(source.Bytes, source.BytesPerSecond, probed)
		if !higher {
			continue
		}
		m.proofs[way] = proof
		if news, significant := m.news(way); significant {
			said = append(said, m.speaker.Say(cause, events.LinkMeasured, linkID(way.from, way.to), news))
		}
	}
	return said
}

// prove counts a transfer that was about as fast as an earlier one.
func (m *Machine) prove(way direction) {
	if proof, proven := m.proofs[way]; proven && proof.Confirmations < mostConfirmations {
		proof.Confirmations++
		m.proofs[way] = proof
	}
}

// mostConfirmations is as many as there are probes in an estimate, about.
const mostConfirmations = 8

// news is what is known of a link where that is worth a fact: it is the first of its direction, or differs from what was said
// last. It counts as said then.
func (m *Machine) news(way direction) (news *events.Measurement, significant bool) {
	known := m.probed[way]
	if carries := m.proofs[way].Bandwidth(known.BytesPerSecond); carries > known.BytesPerSecond {
		known.BytesPerSecond, known.Uncertainty = carries, m.proofs[way].Uncertainty()
	}
	if said, ok := m.state.Said.of(way); ok && !known.Differs(estimate(said), m.settings.Untold) {
		return nil, false
	}
	measured := events.Measurement{
		From: way.from, To: way.to, RoundTripSeconds: known.RoundTripSeconds, BandwidthBytesPerSecond: known.BytesPerSecond,
		Uncertainty: known.Uncertainty,
	}
	measured = measured.Rounded()
	m.state.Said.note(measured)
	return &measured, true
}

func estimate(measured events.Measurement) detect.Estimate {
	return detect.Estimate{
		RoundTripSeconds: measured.RoundTripSeconds, BytesPerSecond: measured.BandwidthBytesPerSecond, Uncertainty: measured.Off(),
	}
}

// Few nodes measure all their links in turn. If there are more, each node measures its links to so many neighbours, half of them before it
// and half behind it in the order of their names. It also measures the links that somebody told of, as joiners do. All links of 1,000 nodes
// would take eleven days, and each would be in every plan request. There is a probe for so many nodes a second, so that a round takes less
// than half an hour however many there are, and each node sends and receives 4 KiB a second in the mean.
const (
	fewNodes       = 17
	mostNeighbours = 4
	nodesPerProbe  = 64
)

// askNextLink wants the next links measured when it is time: the directions between active nodes in turn, and every
// second time a lost link, which must not wait for its turn among many.
func (m *Machine) askNextLink(now float64) {
	if m.settings.LinkSeconds <= 0 {
		return
	}
	for probes := 1 + len(m.state.Nodes)/nodesPerProbe; now >= m.nextLink; {
		m.nextLink = max(m.nextLink, now-m.settings.LinkSeconds) + m.settings.LinkSeconds/float64(probes)
		way, ok := m.nextLost()
		if !ok {
			way, ok = m.nextUsed(now)
		}
		if !ok {
			way, ok = m.nextWay()
		}
		if ok && !m.disconnected(way.pair()) && (len(m.state.Unconfirmed) == 0 || !m.busyWays(now).has(way)) {
			m.askLink(now, way)
		}
	}
}

func (m *Machine) askLink(now float64, way direction) {
	address := m.state.Nodes[way.to].Address
	m.ask(now, Ask{Node: way.from, Target: way.to, Address: address, Bytes: m.settings.LinkBytes})
}

// nextWay returns the next direction of the round between nodes that are well.
func (m *Machine) nextWay() (direction, bool) {
	if len(m.round) == 0 {
		if m.round = m.ways(); len(m.round) > 0 {
			m.round = m.round[m.state.Turn%len(m.round):] // it was begun before a restart
		}
	}
	for len(m.round) > 0 {
		way := m.round[0]
		m.round = m.round[1:]
		if m.state.Turn++; len(m.round) == 0 {
			m.state.Turn = 0
		}
		if m.well(way.from) && m.well(way.to) {
			return way, true
		}
	}
	return direction{}, false
}

func (m *Machine) well(name string) bool {
	known := m.state.Nodes[name]
	return known != nil && known.Active && m.detector.State(name) == detect.Green
}

// ways are the directions of a round: those between neighbours, nearest first, and those that anybody told of. They are
// all n(n-1) of a few nodes, and O(n) of many.
func (m *Machine) ways() []direction {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(m.state.Nodes)), func(name string) bool { return !m.well(name) })
	var ways []direction
	taken, neighbours := map[direction]bool{}, len(names)-1
	if len(names) > fewNodes {
		neighbours = mostNeighbours
	}
	for step := range max(0, neighbours) {
		ahead := 1 + step/2
		if step%2 > 0 {
			ahead = len(names) - ahead
		}
		for from, name := range names {
			way := direction{name, names[(from+ahead)%len(names)]}
			ways, taken[way] = append(ways, way), true
		}
	}
	for _, said := range m.state.Said {
		if way := (direction{said.From, said.To}); !taken[way] {
			ways = append(ways, way)
		}
	}
	return ways
}

// nextLost returns a lost link every second time, as long as there are any.
func (m *Machine) nextLost() (direction, bool) {
	var lost []events.Pair
	for _, pair := range slices.SortedFunc(maps.Keys(m.state.links), comparePairs) {
		if m.lost(pair) {
			lost = append(lost, pair)
		}
	}
	m.lostTurn++
	if len(lost) == 0 || m.lostTurn%2 == 0 {
		return direction{}, false
	}
	pair := lost[m.lostTurn/2%len(lost)]
	return direction{pair.A, pair.B}, true
}

// linkID names a link in a subject. Names too long for a token are shortened to a digest.
func linkID(from, to string) string {
	if id := from + "-" + to; events.Token(id) {
		return id
	}
	return "link-" + events.Digest([]byte(from + " " + to))[len("sha256:"):][:32]
}
