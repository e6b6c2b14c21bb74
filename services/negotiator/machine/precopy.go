package machine

import (
	"slices"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

// preCopying is whose units move while training goes on.
type preCopying struct {
	Started bool     `json:"started"`         // units began to move while training goes on
	Awaited []string `json:"awaited"`         // receivers that have not caught up
	Grace   float64  `json:"grace,omitempty"` // seconds that units may move before a leaver's deadline; zero: none
}

// worthPreCopying reports whether all would pause so long for the units that they had better move while training goes
// on.
func (m *Machine) worthPreCopying() bool {
	plan := m.state.Negotiation.Plan
	return len(plan.Migration.Transfers) > 0 &&
		plan.Predicted.TransitionSeconds > m.settings.PreCopySteps*m.state.Plan.Predicted.StepSeconds
}

// canPreCopy reports whether all who give or receive units can do so while training goes on.
func (n *negotiation) canPreCopy() bool {
	able := map[string]bool{}
	for _, member := range n.Opening.Members { // the plan does not name a giver that leaves
		able[member.Node] = member.PreCopies
	}
	return !slices.ContainsFunc(n.Plan.Migration.Transfers, func(transfer events.Transfer) bool {
		return !able[transfer.To] ||
			slices.ContainsFunc(transfer.Sources, func(source events.Source) bool { return !able[source.Node] })
	})
}

// hasGrace reports whether units may move before each leaver's deadline, and notes for how long.
func (m *Machine) hasGrace() bool {
	under := m.state.Negotiation
	for _, change := range under.Opening.Changes {
		deadline, has := m.state.Deadlines[change.Node]
		if !has {
			continue
		}
		left := deadline.Sub(m.cause.Logged).Seconds()
		grace := left / 2 // the other half is for the pause
		if len(under.takenFrom(change.Node)) == 0 {
			grace = left - protocol.ComeSeconds(m.stepSeconds()) // it need only come to the step at which all stop
		}
		if grace <= 0 {
			return false
		}
		if under.Grace == 0 || grace < under.Grace {
			under.Grace = grace
		}
	}
	return true
}

// preCopy lets units move while training goes on, until every receiver has said how far it came.
func (m *Machine) preCopy() {
	under := m.state.Negotiation
	under.enter(protocol.PreCopying)
	under.Started, under.Awaited = true, under.receivers()
	m.say(events.PreCopyStarted, under.ID, &events.PreCopyStart{Negotiation: under.ID, Plan: *m.finalPlan()})
}

// caughtUp hears that a receiver has what it can have before all stop, or why not; then its units come while all are
// paused.
func (m *Machine) caughtUp(caughtUp events.CaughtUp) {
	if under := m.under(caughtUp.Negotiation, protocol.PreCopying); under != nil {
		under.Awaited = slices.DeleteFunc(under.Awaited, func(other string) bool { return other == caughtUp.Node })
	}
}

// latePreCopy waits for nobody any more: the units come while all are paused.
func (m *Machine) latePreCopy() { m.state.Negotiation.Awaited = nil }

// allCaughtUp reports whether no receiver is waited for any more.
func (m *Machine) allCaughtUp() bool { return len(m.state.Negotiation.Awaited) == 0 }

// receivers returns the nodes that are to have units, each once.
func (n *negotiation) receivers() []string {
	var nodes []string
	for _, transfer := range n.Plan.Migration.Transfers {
		if !slices.Contains(nodes, transfer.To) {
			nodes = append(nodes, transfer.To)
		}
	}
	return nodes
}
