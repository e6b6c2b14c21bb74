package machine

import (
	"slices"

	"github.com/reknit/reknit/events"
)

// concerns reports whether a speaker may say that a plan's moves failed: the restorer, and who gives or takes something.
func concerns(plan *events.Plan, source string) bool {
	return source == restorer || slices.ContainsFunc(plan.Migration.Transfers, func(transfer events.Transfer) bool {
		return source == events.NodeSource(transfer.To) || slices.ContainsFunc(transfer.Sources, func(giver events.Source) bool {
			return source == events.NodeSource(giver.Node)
		})
	})
}

const restorer = "/restorer"

// toBlame returns whom a failure counts against: who says that it is at fault, or of whom the restorer does. Where a receiver
// could not verify what it was given, its word stands against its givers': one of them may be wrong as well. Who is wrong is at
// odds with many, so it is the one whom most doubts are about; the receiver, where it is no fewer.
func (m *Machine) toBlame(cause events.Event, failure events.Failure) string {
	byRestorer := cause.Source == restorer
	for _, way := range m.doubted(failure, byRestorer) {
		m.doubt(way)
	}
	if byRestorer || failure.Node == "" {
		return failure.Node
	}
	blamed, most := failure.Node, 0
	for _, node := range append([]string{failure.Node}, failure.Givers...) {
		if doubters := m.doubters(node); doubters > most {
			blamed, most = node, doubters
		}
	}
	if blamed != failure.Node {
		m.state.Blamed[blamed] = max(m.state.Blamed[blamed], mostBlame-1) // others who were at odds with it bore the blame
	}
	return blamed
}

// doubted returns the ways on which units did not arrive: from the givers that a failure names to the receiver that tells of it,
// as far as the plan has them, or to whomever where the restorer does.
func (m *Machine) doubted(failure events.Failure, byRestorer bool) (ways []events.Doubt) {
	if byRestorer {
		for _, giver := range failure.Givers {
			ways = append(ways, events.Doubt{From: giver, Times: 1})
		}
		return ways
	}
	for _, transfer := range m.state.Negotiation.Plan.Migration.Transfers {
		for _, source := range transfer.Sources {
			way := events.Doubt{From: source.Node, To: transfer.To, Times: 1}
			if failure.Node == transfer.To && slices.Contains(failure.Givers, source.Node) && !slices.Contains(ways, way) {
				ways = append(ways, way)
			}
		}
	}
	return ways
}

func (m *Machine) doubt(way events.Doubt) {
	is := func(doubt events.Doubt) bool { return doubt.From == way.From && doubt.To == way.To }
	if i := slices.IndexFunc(m.state.Doubts, is); i >= 0 {
		m.state.Doubts[i].Times++
	} else {
		m.state.Doubts = append(m.state.Doubts, way)
	}
}

// doubters counts the nodes that a node is at odds with.
func (m *Machine) doubters(node string) (others int) {
	for _, doubt := range m.state.Doubts {
		if doubt.From == node || doubt.To == node {
			others++
		}
	}
	return others
}
