package machine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/detect"
)

// handlers says what the machine does about each kind of event. It hears some of its own facts, so that one that was
// said just before a crash is not said again in other words.
var handlers = events.Handlers[*Machine]{
	events.JoinRequested:     events.Handling((*Machine).join),
	events.MembershipRefused: events.Handling((*Machine).refused),
	events.NegotiationOpened: events.Handling((*Machine).opened),
	events.Committed:         events.Handling((*Machine).committed),
	events.LinksMeasured:     events.Handling((*Machine).connected),
	events.ShardReceived:     events.Handling((*Machine).received),
	events.NodeExited:        events.Handling((*Machine).exited),
	events.NodeLost:          events.Handling((*Machine).nodeLost),
	events.LinkMeasured:      events.Handling((*Machine).linkMeasured),
	events.LinkLost:          events.Handling((*Machine).linkLost),
	events.LinkRestored:      events.Handling((*Machine).linkRestored),
	events.TrainingCompleted: events.Handling((*Machine).completed),
	events.TrainingStopped:   events.Handling((*Machine).stopped),
	events.TrainingReset:     events.Handling((*Machine).begunAnew),
}

// Hears returns the kinds that the machine handles.
func (m *Machine) Hears() []events.Kind { return handlers.Kinds() }

// Handle takes an event of a kind it hears.
func (m *Machine) Handle(event events.Event) ([]events.Event, error) {
	return handlers.Handle(m, event)
}

// join watches a node from its request on: a joiner can die, too. A process that comes after the end of the job is refused and
// ends. It is not watched, for it would be said lost where the refusal is heard late, unless training begins anew instead.
func (m *Machine) join(cause events.Event, join events.Join) []events.Event {
	if m.state.Completed {
		m.state.Late.came(join.Node, nodeOf(join), cause.Logged)
		return nil
	}
	m.state.Returns.Came(join.Node)
	known := m.state.Nodes[join.Node]
	if known != nil && known.Incarnation == join.Incarnation {
		return nil // others dial the address that it asked with first, as they do where the negotiator heard it
	}
	var said []events.Event
	if known != nil && m.state.Leavers[join.Node] > 0 {
		said = m.lose(cause.Logged, detect.Verdict{Node: join.Node}) // others wait for it in a step that it was to train
		m.hangs.Forget(join.Node)
	} else if known != nil {
		m.state.Rate.Failures++ // its process was restarted
		m.forget(join.Node)
	}
	m.watch(join.Node, nodeOf(join))
	return said
}

func nodeOf(join events.Join) *node {
	return &node{Incarnation: join.Incarnation, Address: join.Address, Site: join.Site}
}

func (m *Machine) watch(name string, known *node) {
	m.state.Nodes[name] = known
	m.detector.Watch(detect.Watched{Node: name, Incarnation: known.Incarnation, Site: known.Site})
}

// refused forgets a node that may not join or was given up. It stays what it is whatever else it was refused.
func (m *Machine) refused(_ events.Event, refusal events.Refusal) []events.Event {
	m.state.Late.went(refusal.Node, refusal.Incarnation)
	ends := refusal.Refused == events.ChangeJoin || refusal.Refused == events.RefusedMembership
	if known := m.state.Nodes[refusal.Node]; ends && known != nil && known.Incarnation == refusal.Incarnation {
		m.forget(refusal.Node)
	}
	return nil
}

func (m *Machine) opened(_ events.Event, opening events.Opening) []events.Event {
	m.state.Opening = &opening
	return nil
}

// committed makes the members of the negotiation the active nodes, and forgets those that were given up. One that
// leaves is watched on: the others need it until the plan takes over.
func (m *Machine) committed(_ events.Event, commitment events.Commitment) []events.Event {
	opening := m.state.Opening
	if opening == nil || opening.Negotiation != commitment.Negotiation {
		return nil
	}
	m.state.Opening = nil
	left := map[string]bool{}
	for _, change := range opening.Changes {
		switch change.Kind {
		case events.ChangeLeave:
			left[change.Node] = true
		case events.ChangeConnect:
			m.link(events.PairOf(change.Node, change.Peer)).Disconnected = false
		case events.ChangeDisconnect:
			m.disconnect(events.PairOf(change.Node, change.Peer))
		}
	}
	member := map[string]bool{}
	for _, named := range opening.Members {
		known := m.state.Nodes[named.Node]
		member[named.Node] = known != nil && known.Incarnation == named.Incarnation && !left[named.Node]
	}
	for name, known := range m.state.Nodes {
		switch {
		case left[name] && known.Active:
			m.state.Leavers[name] = commitment.Generation
			continue
		case left[name] || known.Active && !member[name] && m.state.Leavers[name] == 0:
			m.forget(name)
		}
		known.Active = member[name] || m.state.Leavers[name] > 0
	}
	return nil
}

// completed forgets all nodes: the job is done, and who falls silent now is not missed.
func (m *Machine) completed(events.Event, events.JobEnd) []events.Event {
	m.state.Completed = true
	m.unwatch()
	return nil
}

// stopped misses nobody who took part until training was stopped: all end. Later joiners are watched.
func (m *Machine) stopped(_ events.Event, stop events.JobStop) []events.Event {
	if stop.Generation > m.state.Halted { // else it is told again, and who joined since is watched
		m.state.Halted = stop.Generation
		m.unwatch()
	}
	return nil
}

// begunAnew watches those who join from here on: training begins anew, and who took part until then has ended, or waits for a place. A node
// that asked for a place after the reset was asked for, but before it was told, waits too.
func (m *Machine) begunAnew(events.Event, events.JobReset) []events.Event {
	m.state.Completed = false
	for _, name := range slices.Sorted(maps.Keys(m.state.Late)) {
		m.watch(name, &m.state.Late[name].node)
	}
	clear(m.state.Late)
	return nil
}

// unwatch forgets all nodes, and the links that nobody cut.
func (m *Machine) unwatch() {
	for name := range m.state.Nodes {
		m.detector.Forget(name)
		m.hangs.Forget(name)
	}
	clear(m.state.Nodes)
	clear(m.state.Leavers)
	maps.DeleteFunc(m.state.links, func(_ events.Pair, known *link) bool { return !known.Disconnected })
	m.state.Said = nil
	clear(m.probed)
	clear(m.measuredAt)
	m.state.Unconfirmed = nil
	clear(m.proofs)
	clear(m.reports)
	clear(m.asked)
	m.state.Opening = nil
}

// takenOver forgets the leavers that a plan does without once all active nodes work under it. One is not enough: a node
// without a place takes up a plan before the others have come to its step.
func (m *Machine) takenOver() {
	for name, without := range m.state.Leavers {
		needed := false
		for other, known := range m.state.Nodes {
			if known.Active && m.state.Leavers[other] == 0 && known.generation < without {
				needed = true
				break
			}
		}
		if !needed {
			m.forget(name)
		}
	}
}

// mostDisconnected bounds the links that are remembered as disconnected on purpose while an end of them is away. The
// negotiator has as many.
const mostDisconnected = 4096

// disconnect notes that a link is not to be used. Links of nodes that are away are forgotten if there are too many such
// links.
func (m *Machine) disconnect(pair events.Pair) {
	m.link(pair).Disconnected = true
	away := func(pair events.Pair, _ *link) bool {
		return m.state.Nodes[pair.A] == nil || m.state.Nodes[pair.B] == nil
	}
	if len(m.state.links) > mostDisconnected {
		maps.DeleteFunc(m.state.links, away)
	}
}

// connected takes the measurements that nodes made of their links while a negotiation waited for them. They count as said,
// for who needs them hears the consents; only what a transfer has proved beyond them is news. Those of a process that is no
// more say nothing of the one that took its place.
func (m *Machine) connected(cause events.Event, told events.Measured) []events.Event {
	if m.state.Opening == nil || m.state.Opening.Negotiation != told.Negotiation {
		return nil
	}
	var said []events.Event
	var ways []direction
	for _, measured := range told.Measurements {
		way := direction{measured.From, measured.To}
		if !m.takesPart(way.from) || !m.takesPart(way.to) {
			continue
		}
		m.probed[way], m.measuredAt[way] = estimate(measured), m.ticked
		ways = append(ways, way)
		m.state.Said.note(measured.Rounded())
		if news, significant := m.news(way); significant {
			said = append(said, m.speaker.Say(cause, events.LinkMeasured, linkID(way.from, way.to), news))
		}
	}
	m.state.Unconfirmed.add(ways)
	return said
}

// takesPart reports whether the process of a node that is known is a member of the negotiation.
func (m *Machine) takesPart(node string) bool {
	known := m.state.Nodes[node]
	if known == nil || m.state.Opening == nil {
		return false
	}
	member, there := events.MemberOf(m.state.Opening.Members, node)
	return there && member.Incarnation == known.Incarnation
}

// linkMeasured hears what was said of a link. It is news only after a crash, to a memory that did not know it yet.
func (m *Machine) linkMeasured(_ events.Event, measured events.Measurement) []events.Event {
	way := direction{measured.From, measured.To}
	if said, known := m.state.Said.of(way); m.knows(way) && (!known || said != measured) {
		m.state.Said.note(measured)
		m.probed[way] = estimate(measured)
	}
	return nil
}

func (m *Machine) knows(way direction) bool {
	return m.state.Nodes[way.from] != nil && m.state.Nodes[way.to] != nil
}

// mostWaited bounds what an agent says of for how long the others waited for a script that hangs, in seconds: nobody waits for an hour.
const mostWaited = 3600

// exited takes the word of the agent that was beside a trainer: its process is gone, or hangs. No silence, peer or
// probe has to prove it. A node that nobody watches any more is gone already, or runs another process.
func (m *Machine) exited(cause events.Event, exit events.Exit) []events.Event {
	m.state.Late.went(exit.Node, exit.Incarnation)
	known := m.state.Nodes[exit.Node]
	if known == nil || known.Incarnation != exit.Incarnation {
		return nil
	}
	verdict, state := detect.Verdict{Node: exit.Node, WaitedSeconds: min(exit.WaitedSeconds, mostWaited)}, "is gone"
	known.ended = !exit.Hangs && !exit.Keeps
	if exit.Hangs || exit.WaitedSeconds > 0 {
		state = "hangs"
	}
	reason := fmt.Sprintf("its trainer %s: %s", state, exit.Reason)
	if exit.Expected {
		return m.sayLost(cause.Logged, verdict, reason)
	}
	return m.fail(cause.Logged, verdict, reason)
}

func (m *Machine) nodeLost(_ events.Event, lost events.NodeState) []events.Event {
	if known := m.state.Nodes[lost.Node]; known != nil && known.Incarnation == lost.Incarnation {
		m.state.Rate.Failures++
		m.state.Returns.Lost(lost.Node)
		m.forget(lost.Node)
	}
	return nil
}

func (m *Machine) linkLost(_ events.Event, lost events.LinkState) []events.Event {
	return m.mark(lost, true)
}

func (m *Machine) linkRestored(_ events.Event, restored events.LinkState) []events.Event {
	return m.mark(restored, false)
}

func (m *Machine) mark(state events.LinkState, lost bool) []events.Event {
	if m.knows(direction{state.From, state.To}) {
		m.link(events.PairOf(state.From, state.To)).Lost = lost
	}
	return nil
}

// forget removes a node and all that is known of its links, but that one was disconnected on purpose: it stays so when
// the node comes back.
func (m *Machine) forget(name string) {
	delete(m.state.Nodes, name)
	delete(m.state.Leavers, name)
	m.detector.Forget(name)
	m.hangs.Forget(name)
	m.state.Unconfirmed.forget(name)
	touches := func(pair events.Pair) bool { return pair.A == name || pair.B == name }
	for pair, known := range m.state.links {
		switch {
		case !touches(pair):
		case known.Disconnected:
			known.Lost = false
		default:
			delete(m.state.links, pair)
		}
	}
	maps.DeleteFunc(m.reports, func(pair events.Pair, _ detect.Reports) bool { return touches(pair) })
	m.state.Said = slices.DeleteFunc(m.state.Said, func(said events.Measurement) bool { return said.From == name || said.To == name })
	maps.DeleteFunc(m.probed, func(way direction, _ detect.Estimate) bool { return touches(way.pair()) })
	maps.DeleteFunc(m.measuredAt, func(way direction, _ float64) bool { return touches(way.pair()) })
	maps.DeleteFunc(m.proofs, func(way direction, _ detect.Proof) bool { return touches(way.pair()) })
	maps.DeleteFunc(m.asked, func(ask Ask, _ float64) bool { return ask.Node == name || ask.Target == name })
}

func comparePairs(a, b events.Pair) int { return cmp.Or(cmp.Compare(a.A, b.A), cmp.Compare(a.B, b.B)) }
