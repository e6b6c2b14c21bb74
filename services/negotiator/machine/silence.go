package machine

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

const (
	// longestTick is how much of the time between two ticks counts as waiting. A tick that comes later tells that this
	// service or the way to the hub was away, and answers may be on their way still.
	longestTick = time.Second
	// hubAway is how much longer an overdue fact may take into the log than the one before it. Beyond that the hub is
	// taken to have been away. The time that one fact takes proves nothing: this service's clock may be seconds apart from
	// that of the log.
	hubAway = time.Second
)

// waiting is what the machine has been waiting for, and for how long by its own ticks.
type waiting struct {
	events.Overdue
	waited time.Duration
	told   bool
}

// Tick says when somebody was waited for too long, and when something is to be done that had to wait. It decides
// nothing: an answer that is in the log already, though not heard yet, must count.
func (m *Machine) Tick(now time.Time) []events.Event {
	passed := min(max(now.Sub(m.ticked), 0), longestTick)
	if m.ticked.IsZero() {
		passed = 0
	}
	m.ticked = now
	m.since += passed
	if m.state.Complete != nil {
		return m.retell(now)
	}
	said := m.alarms(now)
	if m.state.Reset != nil || m.state.Stop != nil && len(m.state.Joiners) == 0 {
		said = append(said, m.retell(now)...)
	}
	wanted, limit := m.wanted()
	if m.waits.Overdue != wanted {
		m.waits, passed = waiting{Overdue: wanted}, 0
	}
	m.waits.waited += passed
	if limit == 0 || m.waits.told || m.waits.waited < limit {
		return said
	}
	m.waits.told = true
	reason := fmt.Sprintf("%s-%s-%d-%d", wanted.Negotiation, wanted.Phase, wanted.Round, m.state.generation())
	overdue := m.speaker.First(now, reason, events.NegotiationOverdue, wanted.Negotiation, &wanted)
	if under := m.state.Negotiation; under != nil {
		overdue.Traceparent = under.Trace
	}
	return append(said, overdue)
}

// The subjects of an overdue fact beside phases.
const (
	held     = "held"     // the cluster, which is to be tried again
	joining  = "joining"  // a node that had to wait until its join is negotiated
	leaving  = "leaving"  // a node whose deadline has passed
	shifting = "shifting" // a node whose links are heeded again
	asking   = "asking"   // a request of a user, which was only heard
)

// alarms says which joiners have waited long enough and whose deadline has passed, each once. Both are times of the
// log. Its clock may be set anew, so it is read where an event was logged last, and goes on by ticks from there.
func (m *Machine) alarms(now time.Time) []events.Event {
	var said []events.Event
	log, rung := m.state.Heard.Add(m.since), map[string]bool{}
	ring := func(what, node, incarnation string) {
		id := alarmID(what, node, incarnation)
		rung[id] = true
		if !m.rung[id] {
			said = append(said, m.speaker.First(now, id, events.NegotiationOverdue, id,
				&events.Overdue{Negotiation: id, Phase: what, Node: node}))
		}
	}
	for _, node := range slices.Sorted(maps.Keys(m.state.Joiners)) {
		joiner := m.state.Joiners[node]
		if !joiner.NotBefore.IsZero() && !joiner.NotBefore.After(log) {
			ring(joining, node, joiner.Incarnation)
		}
	}
	for _, node := range slices.Sorted(maps.Keys(m.state.Deadlines)) {
		if leaver := m.state.Members[node]; leaver != nil && !m.state.Deadlines[node].After(log) {
			ring(leaving, node, leaver.Incarnation)
		}
	}
	for _, node := range slices.Sorted(maps.Keys(m.state.Shifts)) {
		if due := m.state.Shifts[node]; due.PutOff && !due.notBefore().After(log) {
			ring(shifting, node, fmt.Sprint(due.Ever))
		}
	}
	m.rung = rung
	return said
}

func alarmID(what, node, incarnation string) string {
	return what + "-" + strings.TrimPrefix(events.Digest([]byte(node+" "+incarnation)), "sha256:")[:12]
}

// wanted returns what the machine waits for, and for how long; zero is for ever.
func (m *Machine) wanted() (events.Overdue, time.Duration) {
	under := m.state.Negotiation
	if under == nil {
		return events.Overdue{Negotiation: "none", Phase: held, Round: m.state.Hold.Ever}, seconds(m.holdSeconds())
	}
	wanted := events.Overdue{Negotiation: under.ID, Phase: string(under.Phase), Round: under.Round}
	switch wait := protocol.Waits[under.Phase]; {
	case wait.Members:
		limit := protocol.Grown(m.answerSeconds(), under.Round)
		if soonest := m.excusedFor(); soonest > 0 {
			limit = min(limit, soonest)
		}
		return wanted, seconds(limit)
	case wait.Service != "":
		return wanted, seconds(protocol.ServiceSeconds(m.state.Unanswered))
	case wait.Snapshot && m.isStored():
		wanted.Round = 1 // those who are behind have time from here on
		return wanted, seconds(m.stragglerSeconds())
	case wait.Snapshot:
		return wanted, seconds(m.snapshotSeconds())
	case wait.Shards:
		return wanted, seconds(m.transferSeconds())
	}
	return wanted, 0
}

// holdSeconds is how long a cluster that is held waits until it is tried again; zero where it is not held.
func (m *Machine) holdSeconds() float64 {
	switch hold := m.state.Hold; {
	case !hold.Active:
		return 0
	case hold.Seconds > 0:
		return hold.Seconds
	default:
		return protocol.Grown(m.settings.HoldTime.Seconds(), max(hold.InARow-1, 0))
	}
}

func (m *Machine) answerSeconds() float64 {
	return protocol.AnswerSeconds(m.settings.AnswerTimeout.Seconds(), m.stepSeconds())
}

// stepSeconds is how long a step of the plan in force takes.
func (m *Machine) stepSeconds() float64 {
	if m.state.Plan == nil {
		return 0
	}
	predicted := m.state.Plan.Predicted.StepSeconds
	if m.state.Plan.Predicted.Unmeasured && len(m.state.Paces) > 0 {
		predicted = 0 // a guess, that may be minutes off
	}
	return protocol.UsualStep(predicted, slices.Collect(maps.Values(m.state.Paces)))
}

// activated hears how long a node's usual step is, and how long it stood still.
func (m *Machine) activated(activation events.Activation) {
	if _, was := m.before(activation.Node); was && activation.Generation == m.state.generation() {
		m.begun(activation.Step)
	}
	m.measure(activation)
	if member := m.state.Members[activation.Node]; member != nil {
		m.state.Paces[activation.Node], m.state.Pauses[activation.Node] = activation.StepSeconds, activation.LongestSeconds
		member.Stepped = activation.Generation
	}
}

// overdue hears that somebody has not answered in time.
func (m *Machine) overdue(overdue events.Overdue) {
	switch overdue.Phase {
	case joining:
		m.admit(overdue)
		return
	case leaving:
		m.deadlinePassed(overdue)
		return
	case shifting:
		m.agenda.heeds = true
		return
	case asking:
		m.answer(overdue)
		return
	}
	if now, _ := m.wanted(); now != overdue {
		return // it was answered before this
	}
	if m.state.Negotiation == nil {
		m.tryAgain()
		return
	}
	timeouts[m.state.Negotiation.Phase](m)
}

// timeouts are what each phase notes when its time is over.
var timeouts = map[protocol.Phase]func(*Machine){
	protocol.Consenting:   (*Machine).silence,
	protocol.Planning:     (*Machine).lateAnswer,
	protocol.Restoring:    (*Machine).lateAnswer,
	protocol.PreCopying:   (*Machine).latePreCopy,
	protocol.Promising:    (*Machine).silence,
	protocol.Transferring: (*Machine).lateTransfer,
	protocol.Stopping:     (*Machine).lateStop,
}

// lateAnswer hears that the planner or the restorer does not answer.
func (m *Machine) lateAnswer() {
	m.state.Unanswered++
	m.ends(fmt.Sprintf("the %s did not answer in time", protocol.Waits[m.state.Negotiation.Phase].Service))
}

// silence gives up who does not answer, but neither everybody at once, nor after the hub was away, nor who said that it
// needs time, nor the last holder of a unit.
func (m *Machine) silence() {
	under, silent := m.state.Negotiation, m.silent()
	under.Round++
	lag := m.cause.Logged.Sub(m.cause.Time)
	away := lag-m.state.Lag > hubAway
	m.state.Lag = lag
	switch {
	case away:
		return // the way to them is at fault, or this service
	case len(silent) == len(m.expected()):
		m.askAgain() // likewise, unless none of them knows any more that it was asked
		return
	}
	placed := m.state.placed()
	spare, last := protocol.Spare(placed, m.unexcused(silent, placed, m.cause.Logged))
	if len(spare) > 0 {
		m.noteUnkept(spare, m.cause.Logged)
		m.giveUp(spare, "no answer in time: given up", false)
		return
	}
	if len(last) == 0 {
		return
	}
	m.askAgain()
	m.agenda.awaits = last
}

// askAgain opens the negotiation anew where several waits in a row brought nothing, and nobody can be given up: a process that has lost
// its answer, or never heard the question, has another one. Each time it is waited for twice as long, so that 1,000 nodes who answer
// each question say no more than they do to one change every ten minutes.
func (m *Machine) askAgain() {
	if m.state.Negotiation.Round < 2+m.state.Reasked {
		return
	}
	m.state.Reasked = min(m.state.Reasked+1, protocol.MostDoublings)
	m.ends("nobody can go on without an answer that does not come: all are asked again")
}

// admit negotiates the join of a node that has waited for its turn.
func (m *Machine) admit(overdue events.Overdue) {
	joiner := m.state.Joiners[overdue.Node]
	if joiner == nil || overdue.Negotiation != alarmID(joining, overdue.Node, joiner.Incarnation) {
		return
	}
	joiner.NotBefore = time.Time{}
	m.negotiate(protocol.Patient)
}

// deadlinePassed gives up a node that had to leave by now, unless all stand still for a plan that takes nothing from it,
// or it is the last to hold a unit: as long as it lives it is needed.
func (m *Machine) deadlinePassed(overdue events.Overdue) {
	leaver := m.state.Members[overdue.Node]
	if leaver == nil || overdue.Negotiation != alarmID(leaving, overdue.Node, leaver.Incarnation) {
		return
	}
	under := m.state.Negotiation
	if under != nil && under.Opening.Stop {
		return // all leave, and what it writes is needed
	}
	if under != nil && under.Phase == protocol.Transferring && leaves(under.Opening.Changes, overdue.Node) &&
		len(under.takenFrom(overdue.Node)) == 0 {
		return
	}
	spare, _ := protocol.Spare(m.state.placed(), []string{overdue.Node})
	if len(spare) == 0 {
		return
	}
	m.giveUp(spare, "its deadline passed before the cluster could do without it", false)
}

// expected returns the members whose answer the phase needs. Only who trains can pass a step, and has to promise. A member that was lost
// since the opening cannot consent.
func (m *Machine) expected() []string {
	under, trains := m.state.Negotiation, map[string]bool{}
	if m.state.Plan != nil {
		for _, pipeline := range m.state.Plan.Pipelines {
			for _, stage := range pipeline.Stages {
				trains[stage.Node] = true
			}
		}
	}
	var expected []string
	for _, member := range under.Opening.Members {
		known := m.state.known(member.Node)
		consents := under.Phase == protocol.Consenting && known != nil && known.Incarnation == member.Incarnation
		if consents || under.Phase == protocol.Promising && trains[member.Node] {
			expected = append(expected, member.Node)
		}
	}
	return expected
}

// trains reports whether a member of the negotiation under way has a place in the plan in force.
func (m *Machine) trains(node string) bool {
	if m.state.Plan == nil || !m.state.Negotiation.takesPart(node, "") {
		return false
	}
	_, placed := m.state.Plan.Holds(node)
	return placed
}

// silent returns the members that the phase still waits for.
func (m *Machine) silent() []string {
	under := m.state.Negotiation
	return slices.DeleteFunc(m.expected(), func(node string) bool {
		_, consented := under.Consents[node]
		_, promised := under.Promises[node]
		return under.Phase == protocol.Consenting && consented || under.Phase == protocol.Promising && promised
	})
}

// answered strikes a node off those whom the phase waits for.
func (m *Machine) answered(node string) { delete(m.state.Negotiation.missing, node) }

// allAnswered reports whether the phase waits for nobody any more. The awaited members are looked up once in a phase: with a thousand
// members that takes as long as all else that an answer brings about.
func (m *Machine) allAnswered() bool {
	under := m.state.Negotiation
	if under.missing == nil {
		under.missing = map[string]bool{}
		for _, silent := range m.silent() {
			under.missing[silent] = true
		}
	}
	return len(under.missing) == 0
}
