package machine

import (
	"slices"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

// agenda is what the event under way calls for and is not decided yet: handlers note it, and the rules of advance.go take it off. It is
// empty between two events, so that nothing of it has to be remembered.
type agenda struct {
	takesUp   bool             // changes came, or who takes part is gone
	urgency   protocol.Urgency // of these
	ended     string           // why the negotiation under way cannot go on; empty: it can
	aborted   *aborted         // the one that was under way; nil: none was aborted
	whose     string           // whose job the cluster's is: who waits with another one is refused
	calledOff string           // why nobody may leave who asked for it; empty: they may
	refused   []events.Change  // that are not brought about
	why       string           // those are refused
	opens     bool             // what is pending may be negotiated, once nothing is
	heeds     bool             // what was measured may change who should train
	lack      *lack            // why nothing can be done; nil: something can
	awaits    []string         // silent nodes without which the negotiation under way cannot go on
}

// aborted is a negotiation that ended without a plan.
type aborted struct {
	under  *negotiation
	reason string
	at     int // where it is said, among what is said
}

// lack is why nothing can be done until the world changes.
type lack struct {
	reason  string
	awaits  []string // nodes that may bring what is missing
	seconds float64  // it is tried again, or done without, after so many; zero: as usual
	older   bool     // the log is older than what nodes trained
}

// pend notes a change that is to be negotiated.
func (m *Machine) pend(change events.Change, urgency protocol.Urgency) {
	change.Cause = m.cause.ID
	m.state.Pending = append(m.state.Pending, change)
	m.state.Hold.InARow, m.state.Together = 0, max(m.state.Together, 0) // who comes may make possible what was not
	m.negotiate(urgency)
}

// negotiate notes that the pending changes are others now.
func (m *Machine) negotiate(urgency protocol.Urgency) {
	m.agenda.takesUp, m.agenda.urgency = true, max(m.agenda.urgency, urgency)
}

// ends notes why the negotiation under way cannot go on.
func (m *Machine) ends(reason string) { m.agenda.ended = reason }

// renew notes that what is pending is to be negotiated from the beginning.
func (m *Machine) renew() {
	m.agenda.opens = true
	if m.state.Negotiation != nil {
		m.ends("the changes are others now")
	}
}

// stuck notes why nothing can be done, and who may change that.
func (m *Machine) stuck(reason string, awaits ...string) { m.stuckFor(0, reason, awaits...) }

// stuckFor notes that for so many seconds at most; zero: until it is tried again.
func (m *Machine) stuckFor(seconds float64, reason string, awaits ...string) {
	m.agenda.lack = &lack{reason: reason, awaits: awaits, seconds: seconds}
}

// refusing notes that the pending changes that match are refused, if they can be.
func (m *Machine) refusing(reason string, match func(events.Change) bool) {
	m.agenda.why = reason
	m.agenda.refused = slices.DeleteFunc(slices.Clone(m.state.Pending), func(change events.Change) bool { return !match(change) })
}
