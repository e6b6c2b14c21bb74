package machine

import (
	"slices"
	"strings"

	"github.com/reknit/reknit/events"
)

// Ignores reports whether an event is nothing to this node, whatever its data: a node says it that is no member of a negotiation under
// way here, nor of one that is kept until its plan comes. A member gives units only behind the opening that names it, in the same log.
func (m *Machine) Ignores(event events.Event) bool {
	node, isNode := strings.CutPrefix(event.Source, events.NodeSource(""))
	return isNode && !m.negotiatesWith(node)
}

func (m *Machine) negotiatesWith(node string) bool {
	if m.negotiation != nil && isMember(node, m.negotiation.opening.payload) {
		return true
	}
	return slices.ContainsFunc(m.overtaking, func(kept events.Event) bool {
		if kept.Kind != events.NegotiationOpened {
			return false
		}
		opening, err := events.Open[events.Opening](kept)
		return err == nil && isMember(node, opening)
	})
}

func isMember(node string, opening events.Opening) bool {
	_, is := events.MemberOf(opening.Members, node)
	return is
}
