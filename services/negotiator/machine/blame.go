package machine

import (
	"slices"
	"strings"

	"github.com/reknit/reknit/events"
)

// troubles are what does not end, or not in time, and whose fault that is.
type troubles struct {
	Busy    map[string]busy `json:"busy"` // by "phase node": members that said they will answer later
	Breaks  breaks          `json:"breaks"`
	Poison  poison          `json:"poison,omitzero"`
	Misread map[string]bool `json:"misread"`          // by "node plan position": snapshots, or a unit behind it, not read lately; by node: two
	Differ  string          `json:"differ,omitempty"` // in which bytes those who read the last of these differ
	Tellers []string        `json:"tellers"`          // of failed transfers, one for each negotiation in a row that failed so
	Blamed  map[string]int  `json:"blamed"`           // failed transfers since the last commit, by the node that is to blame
	Alone   []string        `json:"alone,omitempty"`  // last holders of whom one of these did not give what others claim, likewise
	Doubts  []events.Doubt  `json:"doubts"`           // since the last commit; each pair once
}

// concerns reports whether a speaker may say that a plan's moves failed: the restorer, and who gives or takes something.
func concerns(plan *events.Plan, source string) bool {
	return source == restorer || slices.ContainsFunc(plan.Migration.Transfers, func(transfer events.Transfer) bool {
		return source == events.NodeSource(transfer.To) || slices.ContainsFunc(transfer.Sources, func(giver events.Source) bool {
			return source == events.NodeSource(giver.Node)
		})
	})
}

const restorer = "/restorer"

// toBlame returns whom a failure counts against: who says that it is at fault, or of whom the restorer does. The word of a receiver that
// could not verify what it was given stands against its givers': one of them may be wrong as well. A node that is wrong is at odds with
// many. A giver is to blame if more receivers could not verify it than any other giver of this receiver, and more than the givers that this
// receiver is at odds with. A node that blames the hub gives nothing to the next plan that others can give.
func (m *Machine) toBlame(failure events.Failure) string {
	node, isNode := strings.CutPrefix(m.cause.Source, events.NodeSource(""))
	ways := m.doubted(failure, isNode)
	if isNode && failure.Node == "" {
		ways = []events.Doubt{{From: node, Times: 1}}
	}
	for _, way := range ways {
		m.doubt(way)
	}
	if !isNode || failure.Node == "" {
		return failure.Node
	}
	blamed, most := failure.Node, max(1, m.atOdds(func(doubt events.Doubt) bool { return doubt.To == failure.Node }))
	for _, way := range ways {
		switch receivers := m.atOdds(func(doubt events.Doubt) bool { return doubt.From == way.From && doubt.To != "" }); {
		case receivers > most:
			blamed, most = way.From, receivers
		case receivers == most:
			blamed = failure.Node
		}
	}
	if blamed != failure.Node {
		m.state.Blamed[blamed] = max(m.state.Blamed[blamed], mostBlame-1) // others who were at odds with it bore the blame
	}
	return blamed
}

// doubted returns the ways on which units did not arrive: from the givers that a failure names to the receiver that tells of it,
// as far as the plan has them, or to whomever where the restorer does.
func (m *Machine) doubted(failure events.Failure, byNode bool) (ways []events.Doubt) {
	if !byNode {
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

// doubt remembers a way, the newest events.MostDoubts of them.
func (m *Machine) doubt(way events.Doubt) {
	is := func(doubt events.Doubt) bool { return doubt.From == way.From && doubt.To == way.To }
	if i := slices.IndexFunc(m.state.Doubts, is); i >= 0 {
		m.state.Doubts[i].Times++
		return
	}
	m.state.Doubts = append(m.state.Doubts, way)
	m.state.Doubts = m.state.Doubts[max(0, len(m.state.Doubts)-events.MostDoubts):]
}

// atOdds counts ways, each of which is between two others.
func (m *Machine) atOdds(is func(events.Doubt) bool) (ways int) {
	for _, doubt := range m.state.Doubts {
		if is(doubt) {
			ways++
		}
	}
	return ways
}
