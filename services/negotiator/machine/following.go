package machine

import (
	"slices"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

// worthFollowing reports whether all would stand so long for the layers that they had better move while training goes on.
func (m *Machine) worthFollowing() bool {
	plan := m.state.Negotiation.Plan
	return len(plan.Migration.Transfers) > 0 &&
		plan.Predicted.TransitionSeconds > m.settings.PreCopySteps*m.state.Plan.Predicted.StepSeconds
}

// canFollow reports whether all who give or receive layers can do so while training goes on.
func (n *negotiation) canFollow() bool {
	follows := map[string]bool{}
	for _, member := range n.Opening.Members { // the plan does not name a giver that leaves
		follows[member.Node] = member.PreCopies
	}
	return !slices.ContainsFunc(n.Plan.Migration.Transfers, func(transfer events.Transfer) bool {
		return !follows[transfer.To] ||
			slices.ContainsFunc(transfer.Sources, func(source events.Source) bool { return !follows[source.Node] })
	})
}

// start lets layers move while training goes on, until every receiver has said how far it came.
func (m *Machine) start(cause events.Event) []events.Event {
	under := m.state.Negotiation
	under.Phase, under.Overdue, under.Started = protocol.PreCopying, 0, true
	for _, transfer := range under.Plan.Migration.Transfers {
		under.Awaited = append(under.Awaited, transfer.To)
	}
	return []events.Event{m.say(cause, events.PreCopyStarted, &events.PreCopyStart{Negotiation: under.ID, Plan: *m.finalPlan()})}
}

// followed hears that a receiver follows, or why it does not; its layers then come where all stand.
func (m *Machine) followed(cause events.Event, followed events.CaughtUp) []events.Event {
	under := m.under(followed.Negotiation, protocol.PreCopying)
	if under == nil {
		return nil
	}
	under.Awaited = slices.DeleteFunc(under.Awaited, func(node string) bool { return node == followed.Node })
	if len(under.Awaited) > 0 {
		return nil
	}
	return m.prepare(cause)
}
