package machine

import (
	"cmp"
	"maps"
	"slices"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/detect"
)

// witnesses is how many nodes try a suspected one at a time.
const witnesses = 3

// mostTried is how many silent nodes are tried within a second. The witnesses would spend their time on such nodes
// alone if more were tried.
const mostTried = 64

// nextTried returns the silent nodes whose turn it is to be tried: those first that were not for longest. A node that waits for its place
// is not: no negotiation has let it in, and its address may be anybody's. A node whose findings are about
// to be stale, or that has none, is waited for until its turn comes.
func (m *Machine) nextTried(now float64) []string {
	var due []string
	left := mostTried
	for name, known := range m.state.Nodes {
		switch {
		case known.rounds > 0 && now-known.tried < askAgainSeconds:
			left--
		case known.Suspected && (known.Active || m.takesPart(name)):
			due = append(due, name)
		}
	}
	slices.SortFunc(due, func(a, b string) int {
		return cmp.Or(cmp.Compare(m.state.Nodes[a].tried, m.state.Nodes[b].tried), cmp.Compare(a, b))
	})
	next := due[:min(max(left, 0), len(due))]
	for _, name := range due[len(next):] {
		if known := m.state.Nodes[name]; known.rounds == 0 || now-known.tried >= detect.FreshSeconds-askAgainSeconds {
			m.detector.Defer(now, name)
		}
	}
	return next
}

// askWitnesses has others try suspected nodes on the path that training uses: one of the same site, if any, for it
// shares the node's way to the hub, and the rest from elsewhere, where there are others. Each round asks the next ones,
// and for each node others.
func (m *Machine) askWitnesses(now float64, suspected []string) {
	if len(suspected) == 0 {
		return
	}
	bySite, well := map[string][]string{}, []string{}
	for _, name := range slices.Sorted(maps.Keys(m.state.Nodes)) {
		if known := m.state.Nodes[name]; known.Active && m.detector.State(name) == detect.Green {
			well = append(well, name)
			bySite[known.Site] = append(bySite[known.Site], name)
		}
	}
	for position, target := range suspected {
		known := m.state.Nodes[target]
		known.tried = now
		known.rounds++
		asked := map[string]bool{}
		try := func(others []string, most int, butOf string) {
			for i := 0; i < len(others) && len(asked) < most; i++ {
				witness := others[((known.rounds+position)*most+i)%len(others)]
				pair, elsewhere := events.PairOf(witness, target), butOf == "" || m.state.Nodes[witness].Site != butOf
				if elsewhere && !asked[witness] && !m.disconnected(pair) && !m.lost(pair) {
					asked[witness] = true
					m.ask(now, Ask{Node: witness, Target: target, Address: known.Address})
				}
			}
		}
		if known.Site != "" {
			try(bySite[known.Site], 1, "")
		}
		try(well, witnesses, known.Site)
		try(well, witnesses, "")
	}
}

var findings = map[string]detect.Finding{
	events.FoundStalled: detect.Stalled, events.FoundUnreachable: detect.Unreachable,
}

// testified takes what a witness found. A host that refuses connections counts as a reset: with nobody at the hub the
// process is gone. A witness that is silent itself tells nothing.
func (m *Machine) testified(now float64, ask Ask, answer *events.ProbeAnswer) {
	if answer == nil || m.detector.State(ask.Node) != detect.Green {
		return
	}
	if answer.Measured != nil {
		m.detector.Found(now, ask.Target, ask.Node, detect.Reached)
		return
	}
	if answer.Finding == events.FoundRefused {
		m.suspicion(now, ask.Node, events.Suspicion{Node: ask.Target, Refused: true})
	}
	if finding, known := findings[answer.Finding]; known {
		m.detector.Found(now, ask.Target, ask.Node, finding)
	}
}
