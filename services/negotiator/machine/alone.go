package machine

import (
	"slices"

	"github.com/reknit/reknit/events"
)

// A last holder may consent and then give nothing: its store may be broken, or the way to it. It is never given up, for a claim beside it may be
// of other bytes. So it is asked for digests of what it holds, and a claim of the same bytes counts.

// mostAlone is how many members an opening asks for digests.
const mostAlone = 8

// noteAlone notes which of the nodes by whose fault a transfer failed others cannot do without, while somebody claims what it held.
func (m *Machine) noteAlone(last []string) {
	if len(m.state.Negotiation.Claims) == 0 {
		return
	}
	for _, node := range last {
		if !slices.Contains(m.state.Alone, node) && len(m.state.Alone) < mostAlone {
			m.state.Alone = append(m.state.Alone, node)
		}
	}
}

// digesting returns the members that are to tell digests of what they hold.
func (m *Machine) digesting(opening *events.Opening) (nodes []string) {
	if !opening.Abandon || len(opening.Recalls) > 0 {
		return nil
	}
	for _, node := range m.state.Alone {
		if member, there := events.MemberOf(opening.Members, node); there && m.trusts(node, member.Incarnation) {
			nodes = append(nodes, node)
		}
	}
	return nodes
}
