package machine

import (
	"maps"
	"slices"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

// Admit has another policy say who may join from now on. Members that it does not list stay.
func (m *Machine) Admit(admission protocol.Admission) {
	m.settings.Admission, m.state.Admission = admission, admission.Version
}

// unapproved has those refused who join without the approval that the admission policy asks for, once all have consented, and reports
// whether there are any.
// Joiners that are listed, and all other changes, are negotiated anew without those refused. A node with a place in the plan in force was
// approved of when it got the place. It may hold what the others lack.
func (m *Machine) unapproved() bool {
	under := m.state.Negotiation
	consenting := slices.Sorted(maps.Keys(under.Consents))
	lacks := func(change events.Change) string {
		if change.Kind != events.ChangeJoin || m.placed(change.Node) {
			return ""
		}
		return m.settings.Admission.Lacks(change.Node, consenting)
	}
	for _, change := range under.Opening.Changes {
		if reason := lacks(change); reason != "" {
			m.ends(change.Node + " may not join: " + reason)
			m.refusing(reason, func(other events.Change) bool { return lacks(other) != "" })
			return true
		}
	}
	return false
}

// placed reports whether a node has a place in the plan in force.
func (m *Machine) placed(node string) bool {
	if m.state.Plan == nil {
		return false
	}
	_, placed := m.state.Plan.Holds(node)
	return placed
}
