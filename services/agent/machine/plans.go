package machine

import (
	"errors"
	"fmt"
	"time"

	"github.com/reknit/reknit/events"
)

const mostOvertaking = 1024 // events that wait for a plan: those of some hundred negotiations of a small cluster

// committed is a plan, the digest that the next one names as its parent, and of the event that it came in what answers
// to it carry.
type committed struct {
	plan               *events.Plan
	digest             string
	cause, traceparent string
	logged             time.Time // when the log took it
	placed             bool      // it gives this node something to train
}

// newest is the newest committed plan that the node knows to exist.
type newest struct {
	known      bool
	generation uint64
	digest     string    // empty where the plan itself was not heard
	heard      uint64    // the greatest generation that was spoken of
	logged     time.Time // when the log took it, later than the plan before
	told       bool      // by nodes alone, which may have died since: the log has no plan
}

// inOrder takes an event after the plan that it builds on: what overtook it is kept, with all behind it. An answer to
// this node is taken at once: a refusal ends what the kept events are about.
func (m *Machine) inOrder(event events.Event) error {
	switch {
	case event.Kind == events.PlanCommitted:
		if _, err := handlers.Handle(m, event); err != nil {
			return err
		}
		return m.catchUp()
	case m.learnsOfLoss(event):
	case !Answers(event.Kind) && (len(m.overtaking) > 0 || m.overtakes(event)):
		m.keep(event)
		return nil
	}
	_, err := handlers.Handle(m, event)
	return err
}

// overtakes reports whether an event opens a negotiation that builds on a plan not heard of yet. To a node that
// knows of no plan none is missing, and to none where training begins: nodes may have told of a plan that is in no log.
func (m *Machine) overtakes(event events.Event) bool {
	if event.Kind != events.NegotiationOpened || !m.newest.known {
		return false
	}
	opening, err := events.Open[events.Opening](event)
	if err != nil || opening.Begins || opening.Generation <= m.newest.generation+1 {
		return false
	}
	m.newest.heard = max(m.newest.heard, opening.Generation-1)
	m.readMissing()
	return true
}

// learnsOfLoss reports whether an event opens a negotiation in which members are to tell the plan that the log has lost. Nobody hears that
// plan, nor those before it, any more, and what was kept until they come is of a log that is gone.
func (m *Machine) learnsOfLoss(event events.Event) bool {
	if event.Kind != events.NegotiationOpened {
		return false
	}
	opening, err := events.Open[events.Opening](event)
	if err != nil || len(opening.Recalls) == 0 || m.late(opening) {
		return false
	}
	m.overtaking = nil
	m.newest.learn(opening)
	m.newest.digest, m.newest.logged = "", time.Time{}
	m.readMissing()
	return true
}

// learn notes which plan is the newest, as an opening says. Plans that nodes told of before count no more: all who told may have died, and
// then the next opening goes on from an older plan, or begins at generation 1.
func (n *newest) learn(opening events.Opening) {
	if n.told {
		n.heard = 0
	}
	if opening.Generation > n.generation+1 {
		n.digest, n.logged = "", time.Time{}
	}
	n.known, n.generation, n.told = true, opening.Generation-1, len(opening.Recalls) > 0
	n.heard = max(n.heard, n.generation)
}

// keep puts an event aside until its plan is here. A node that is too far behind asks for a place again.
func (m *Machine) keep(event events.Event) {
	m.overtaking = append(m.overtaking, event)
	if len(m.overtaking) > mostOvertaking {
		m.overtaking = nil
		m.giveUp(fmt.Sprintf("plan %d did not come, and %d events behind it", m.newest.generation+1, mostOvertaking))
	}
}

// catchUp takes the events that were kept for the plan which came.
func (m *Machine) catchUp() (err error) {
	for len(m.overtaking) > 0 && !m.overtakes(m.overtaking[0]) {
		event := m.overtaking[0]
		m.overtaking = m.overtaking[1:]
		_, broken := handlers.Handle(m, event)
		err = errors.Join(err, broken)
	}
	return err
}

// readMissing asks, once, for the plan after the newest where a later one was spoken of.
func (m *Machine) readMissing() {
	if missing := m.newest.generation + 1; m.newest.heard >= missing && m.reread != missing {
		m.reread = missing
		m.do(Reread{missing})
	}
}

// committed takes the plan after the newest, which ends the negotiation that made it. A later plan waits for those
// before it, which are read again.
func (m *Machine) committed(event events.Event, plan events.Plan) {
	m.newest.heard, m.newest.told = max(m.newest.heard, plan.Generation), false
	if m.another(plan.Nodes) {
		m.outdone = max(m.outdone, plan.Generation)
		if m.membership != givenUp && m.membership != outside { // these look before they ask again
			m.do(Look{})
		}
	}
	switch {
	case m.newest.known && plan.Generation <= m.newest.generation:
		return
	case m.newest.known && plan.Generation > m.newest.generation+1:
		m.readMissing()
		return
	case m.newest.digest != "" && m.newest.digest != plan.Parent:
		m.end(End{Reason: fmt.Sprintf("plan %d: expected parent %s, got %s: the log went backwards",
			plan.Generation, m.newest.digest, plan.Parent)})
		return
	}
	_, placed := plan.Holds(m.settings.Node)
	logged := event.Logged
	if !m.newest.logged.IsZero() && !logged.After(m.newest.logged) {
		logged = m.newest.logged.Add(1) // the log's clock was set back
	}
	next := committed{&plan, event.Digest(), event.ID, event.Traceparent, logged, placed}
	if m.wants(next.plan) {
		m.pending = append(m.pending, next)
	}
	m.newest.known, m.newest.generation, m.newest.digest, m.newest.logged = true, plan.Generation, next.digest, logged
	m.readMissing()
	m.noticeLeftOut()
	if m.membership == givenUp && !m.named(plan.Nodes) {
		m.replace()
		m.letGo()
	}
	if m.negotiation != nil && m.negotiation.opening.payload.Generation <= plan.Generation {
		m.endNegotiation()
	}
}

// wants reports whether a plan matters to this node: a newcomer waits for the first that names it, and to a member
// that was left out one plan later ones are nothing.
func (m *Machine) wants(plan *events.Plan) bool {
	if last := len(m.pending) - 1; last >= 0 {
		return m.named(m.pending[last].plan.Nodes)
	}
	return m.plan != nil || m.named(plan.Nodes)
}

// ahead returns the newest plan that this node is to take up, or has; nil before the first.
func (m *Machine) ahead() *events.Plan {
	if last := len(m.pending) - 1; last >= 0 {
		return m.pending[last].plan
	}
	if m.plan == nil {
		return nil
	}
	return m.plan.plan
}

func (m *Machine) generation() uint64 {
	if m.plan == nil {
		return 0
	}
	return m.plan.plan.Generation
}
