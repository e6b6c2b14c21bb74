package machine

import (
	"slices"

	"github.com/reknit/reknit/events"
)

// Lends reports whether a node gives shards from an address, as the plan in force has it, one that was heard of and may be taken up at any
// moment, or the negotiation under way.
func (m *Machine) Lends(node, address string) bool {
	lends := func(member events.Member) bool { return member.Node == node && member.ShardAddress == address }
	return m.anyPlan(func(plan *events.Plan) bool { return slices.ContainsFunc(plan.Nodes, lends) }) ||
		m.negotiation != nil && slices.ContainsFunc(m.negotiation.opening.payload.Members, lends)
}

// Deals reports whether a node is one to work with: of such a plan, or of the negotiation under way.
func (m *Machine) Deals(node string) bool {
	return m.anyPlan(func(plan *events.Plan) bool { _, in := plan.Member(node); return in }) || m.negotiatesWith(node)
}

// Incarnation returns that of a node to work with, as the newest has it of the negotiation under way and the plans; empty where none does.
func (m *Machine) Incarnation(node string) (incarnation string) {
	if m.plan != nil {
		if member, in := m.plan.plan.Member(node); in {
			incarnation = member.Incarnation
		}
	}
	for _, coming := range m.pending {
		if member, in := coming.plan.Member(node); in {
			incarnation = member.Incarnation
		}
	}
	if m.negotiation != nil {
		if member, in := events.MemberOf(m.negotiation.opening.payload.Members, node); in {
			incarnation = member.Incarnation
		}
	}
	return incarnation
}

// Relays reports whether frames of a node come to this one through the hub: as such a plan has it, or as its plan may have it that comes of
// the negotiation under way and is heard here later than there.
func (m *Machine) Relays(node string) bool {
	pair := events.PairOf(node, m.settings.Node)
	return m.anyPlan(func(plan *events.Plan) bool { return slices.Contains(plan.Relays, pair) }) || m.negotiatesWith(node)
}

// anyPlan reports whether the plan in force, or one that is to be taken up, is such a one.
func (m *Machine) anyPlan(is func(*events.Plan) bool) bool {
	return m.plan != nil && is(m.plan.plan) ||
		slices.ContainsFunc(m.pending, func(coming committed) bool { return is(coming.plan) })
}
