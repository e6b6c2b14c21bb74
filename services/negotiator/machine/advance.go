package machine

import (
	"slices"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

// All that comes next is decided here. A handler decides nothing: it notes what it heard in the state, or in the agenda. Then the rules are
// tried: the first that is due is applied, and they are tried again from the top until none is due. So each decision is made in one place,
// and none calls the next.

// rules are in order of priority: what ends a negotiation goes before what continues it, and that before what opens another one.
var rules = []struct {
	due    func(*Machine) bool
	decide func(*Machine)
}{
	{(*Machine).isMade, (*Machine).complete},
	{noted(func(a agenda) bool { return a.takesUp }), (*Machine).takeUp},
	{(*Machine).mustEnd, (*Machine).abort},
	{noted(func(a agenda) bool { return a.whose != "" }), (*Machine).refuseOtherJobs},
	{noted(func(a agenda) bool { return a.calledOff != "" }), (*Machine).callOff},
	{noted(func(a agenda) bool { return len(a.refused) > 0 }), (*Machine).refuseNoted},

	{in(protocol.Consenting, (*Machine).allAnswered), (*Machine).endConsenting},
	{(*Machine).mayAskPlanner, (*Machine).askPlanner},
	{in(protocol.Planning, (*Machine).isProposed), (*Machine).restore},
	{in(protocol.Restoring, (*Machine).isPlanned), (*Machine).endRestoring},
	{in(protocol.PreCopying, (*Machine).allCaughtUp), (*Machine).prepare},
	{in(protocol.Promising, (*Machine).allPromised), (*Machine).endPromising},
	{in(protocol.Transferring, (*Machine).hasMoved), (*Machine).commit},
	{in(protocol.Stopping, (*Machine).mayStop), (*Machine).stop},

	{(*Machine).mayOpen, (*Machine).openNext},
	{noted(func(a agenda) bool { return a.heeds }), (*Machine).heed},
	{(*Machine).mustHold, (*Machine).hold},
	{noted(func(a agenda) bool { return len(a.awaits) > 0 }), (*Machine).sayAwaits},
	{noted(func(a agenda) bool { return a.aborted != nil }), (*Machine).sayAborted},
}

// advance decides all that is due because of the event that was heard.
func (m *Machine) advance() {
	for m.decides() {
	}
}

// decides applies the first rule that is due, and reports whether one was.
func (m *Machine) decides() bool {
	for _, rule := range rules {
		if rule.due(m) {
			rule.decide(m)
			return true
		}
	}
	return false
}

// noted is due where something stands in the agenda.
func noted(is func(agenda) bool) func(*Machine) bool {
	return func(m *Machine) bool { return is(m.agenda) }
}

// in is due in one phase of the negotiation under way.
func in(phase protocol.Phase, due func(*Machine) bool) func(*Machine) bool {
	return func(m *Machine) bool {
		under := m.state.Negotiation
		return under != nil && under.Phase == phase && due(m)
	}
}

// complete says that the job is done, and ends all that is asked for or under way.
func (m *Machine) complete() {
	m.state.Complete = &events.JobEnd{
		Generation: m.state.generation(), Step: m.state.Finals.Step, Nodes: m.made(),
		Digest: m.state.Finals.digest(m.state.Job.Units()), Differ: m.state.Finals.differ(),
	}
	if m.state.Negotiation != nil {
		m.ends("the job is complete")
		m.abort()
	}
	m.say(events.TrainingCompleted, m.settings.Cluster, m.state.Complete)
	m.refuseAll()
	m.conclude(m.cause.Logged, m.cause.Logged)
	m.agenda = agenda{aborted: m.agenda.aborted}
}

// takeUp takes up the pending changes: at once, or in place of the negotiation under way, or after it. While all stand
// still and consent, what comes is put off until they have: a rack that dies would else end as many negotiations as it
// has nodes, one after the other.
func (m *Machine) takeUp() {
	under, urgency := m.state.Negotiation, m.agenda.urgency
	m.agenda.takesUp, m.agenda.urgency = false, protocol.Patient
	switch {
	case under == nil:
		m.agenda.opens = true
		return
	case !protocol.Supersedes(urgency, under.Phase, under.Opening.Abandon, m.state.Renewals):
		return
	}
	if urgency < protocol.Urgent && !under.Outdated {
		m.state.Renewals++
	}
	if under.Phase == protocol.Consenting && under.Opening.Abandon {
		under.Outdated, under.missing = true, nil
		return
	}
	m.renew()
}

func (m *Machine) mustEnd() bool { return m.agenda.ended != "" && m.state.Negotiation != nil }

// abort ends the negotiation under way without a plan; its changes stay pending. They are negotiated anew, unless something lacks that
// nobody who came meanwhile may bring.
func (m *Machine) abort() {
	under := m.state.Negotiation
	mends := under.Opening.Abandon && m.mayMend(under, m.cause.Logged)
	m.agenda.aborted = &aborted{under, m.agenda.ended, len(m.said)}
	m.state.Negotiation, m.agenda.ended = nil, ""
	if m.agenda.lack != nil && mends { // all that is asked for is tried
		m.state.readAgain()
		m.state.Together = 0
	}
	m.agenda.opens = m.agenda.lack == nil || mends
}

// mayMend reports whether a change that is due came during a negotiation and may bring what that lacked. A leave brings nothing: one of the
// last node would have the same negotiation opened again at once, thirty times a second (seed 107 of the simulator).
func (m *Machine) mayMend(under *negotiation, now time.Time) bool {
	return slices.ContainsFunc(m.due(now), func(change events.Change) bool {
		return change.Kind != events.ChangeLeave && !slices.Contains(under.Opening.Changes, change)
	})
}

// sayAborted says how a negotiation ended once it is known what follows: it stands before that. Trainers that promised to stop are free
// again, unless another negotiation follows at once.
func (m *Machine) sayAborted() {
	ended := m.agenda.aborted
	m.agenda.aborted = nil
	if m.state.Negotiation == nil && !m.state.Hold.Active {
		clear(m.state.Busy) // the next negotiation is about something else
	}
	said := m.speaker.Say(m.cause, events.Aborted, ended.under.ID, &events.Abort{
		Negotiation: ended.under.ID, Generation: ended.under.Opening.Generation, Reason: ended.reason,
		Superseded: m.state.Negotiation != nil,
	})
	m.said = slices.Insert(m.said, ended.at, said)
}

// refuseOtherJobs refuses those who wait with another job than the cluster's.
func (m *Machine) refuseOtherJobs() {
	whose := m.agenda.whose
	m.agenda.whose = ""
	m.refuseOthers(whose)
}

// callOff has training go on that was to stop, and tells all who asked.
func (m *Machine) callOff() {
	reason := m.agenda.calledOff
	m.agenda.calledOff = ""
	if m.state.Stopping != "" {
		m.refuseStop(reason)
	}
	m.refuseThose(reason, isLeave)
	m.agenda.opens = true
}

// refuseNoted refuses the pending changes that are noted, and goes on with the rest.
func (m *Machine) refuseNoted() {
	refused, reason := m.agenda.refused, m.agenda.why
	m.agenda.refused, m.agenda.why = nil, ""
	m.refuseThose(reason, func(change events.Change) bool { return slices.Contains(refused, change) })
	m.agenda.opens = true
}

// endConsenting does what follows the last consent.
func (m *Machine) endConsenting() {
	under := m.state.Negotiation
	m.tellMeasured()
	switch {
	case under.Outdated || under.Opening.Begins != m.mayBegin():
		m.renew()
	case m.unapproved():
	case under.Opening.Stop:
		m.prepare()
	default:
		under.enter(protocol.Planning)
	}
}

// endRestoring begins to bring about the plan that stands. The moves are planned anew if late leavers are spared now.
func (m *Machine) endRestoring() {
	under := m.state.Negotiation
	late, needs := m.late()
	if under.spareLate(late) {
		under.Plan = nil
		under.enter(protocol.Planning)
		return
	}
	m.sayLate(late, needs)
	switch {
	case under.Opening.Abandon:
		m.transfer()
	case m.worthPreCopying() && under.canPreCopy() && m.hasGrace():
		m.preCopy()
	default:
		m.prepare()
	}
}

// endPromising does what follows the last promise.
func (m *Machine) endPromising() {
	switch {
	case !m.agrees():
	case m.state.Negotiation.Opening.Stop:
		m.lastSnapshot()
	default:
		m.transfer()
	}
}

func (m *Machine) mayOpen() bool { return m.agenda.opens && m.state.Negotiation == nil }

// openNext opens a negotiation of the changes that are due, if there are any and enough nodes that train one job.
func (m *Machine) openNext() {
	m.agenda.opens = false
	m.elect()
	m.extend()
	changes := m.due(m.cause.Logged)
	if len(changes) == 0 {
		m.agenda.heeds = true
		return
	}
	regroups := m.regroupSeconds()
	switch {
	case regroups > 0:
		m.gather(regroups)
	case m.awaitsTold(m.cause.Logged):
		m.lacksTold()
	case m.state.Poison.Held != nil && !m.mayBegin(): // else nobody has a state that it could cost
		m.lacksRelease()
	case m.isOutdone():
		m.lacksNewerLog()
	case m.lacks() > 0:
		if m.state.Hold.Seconds > gatherSeconds {
			m.state.Hold.Seconds = 0 // whoever came since says what the others wait for
		}
		m.gather(gatherSeconds)
	case len(m.state.after(changes)) == 0:
		m.openLast(changes)
	default:
		m.open(changes, false)
	}
}

// openLast decides where nobody would be left. A node that waits for its turn to join has it now, because there is nobody whom it could
// stop. A step that broke is mended before all leave. All together may leave where they can write a snapshot; else they may not: the state
// would be lost.
func (m *Machine) openLast(changes []events.Change) {
	if m.allTurns() {
		m.agenda.opens = true
		return
	}
	if len(m.state.Members) == 0 {
		m.callBack()
		m.stuck(m.nobodyLeft(), m.livingOf(nil)...)
		return
	}
	pressing := slices.DeleteFunc(slices.Clone(changes), func(change events.Change) bool { return !urgent(change) })
	reason := m.cannotStop()
	if reason == "" && m.state.Paused {
		reason = "a step was given up, and no plan follows"
	}
	switch {
	case len(pressing) > 0:
		m.open(pressing, false)
	case reason == "":
		m.open(changes, true)
	case m.state.Stopping != "":
		m.agenda.calledOff = reason
	default:
		m.agenda.calledOff = "no node would be left to hold the layers, and training cannot stop with a snapshot: " + reason
	}
}

func (m *Machine) mustHold() bool { return m.agenda.lack != nil && m.state.Negotiation == nil }

// hold says that nothing can be done until the world changes, and for whom the cluster waits; it is tried again from time to time, with all
// that is asked for: who joins may bring what is missing. A stop that was asked for is called off, and leavers hear of a step that is held.
func (m *Machine) hold() {
	lack := m.agenda.lack
	m.agenda.lack = nil
	m.state.readAgain()
	m.state.Together = 0
	m.state.Hold = hold{Active: true, Ever: m.state.Hold.Ever + 1, InARow: m.state.Hold.InARow + 1,
		Awaits: lack.awaits, Seconds: lack.seconds, Older: lack.older}
	m.sayHeld(lack.reason, lack.awaits)
	if m.state.Stopping != "" {
		reason := "training stands still: " + lack.reason
		m.refuseStop(reason)
		m.refuseThose(reason, isLeave)
	}
	if m.state.Poison.Held != nil {
		m.delayLeaves(func(string) bool { return true })
	}
}

// gather has the first plan wait for more nodes. The wait is told later, unless they come.
func (m *Machine) gather(seconds float64) {
	if m.state.Hold.Active && m.state.Hold.Seconds > 0 {
		return // it waits already
	}
	m.state.Hold = hold{Active: true, Ever: m.state.Hold.Ever + 1, Seconds: seconds}
}

// sayAwaits says for whom a negotiation waits that nobody can do without.
func (m *Machine) sayAwaits() {
	awaits := m.agenda.awaits
	m.agenda.awaits = nil
	m.sayHeld("waiting for "+named(awaits, itself)+", the last to hold some layers", awaits)
}

func (m *Machine) sayHeld(reason string, awaits []string) {
	held := &events.Hold{Reason: reason, Awaits: awaits, Step: m.state.Poison.Held}
	m.say(events.ClusterHeld, m.settings.Cluster, held)
}
