package machine

import (
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/reknit/reknit/events"
)

// apartLimit bounds the pairs that joins leave out: each plan and each request lists them.
const apartLimit = 4096

// unnamed returns the nodes to which a join wants no direct link: those that it does not name, where it names any (Chaos, IV-A).
func (m *Machine) unnamed(join events.Join) (others []string) {
	if len(join.Neighbours) == 0 {
		return nil
	}
	for _, nodes := range []map[string]*member{m.state.Members, m.state.Joiners} {
		for node := range nodes {
			if node != join.Node && !slices.Contains(join.Neighbours, node) {
				others = append(others, node)
			}
		}
	}
	return others
}

// leavesOutTooMany says why a join may not leave out as many links as it does; empty where it may.
func (m *Machine) leavesOutTooMany(join events.Join) string {
	before, others := 0, len(m.unnamed(join))
	for pair := range m.state.Apart {
		if !touches(pair, join.Node) { // those of its process before go with it
			before++
		}
	}
	if others > 0 && before+others > apartLimit {
		return fmt.Sprintf(`field "neighbours": expected at most %d links in all that joins leave out, got %d, and %d more of this one`,
			apartLimit, before, others)
	}
	return ""
}

// leaveOut disconnects a joiner from the nodes that its join does not name, and connects it to those that it names. It returns
// those of the latter from which it was cut, by their pairs.
func (m *Machine) leaveOut(join events.Join) (lifted []string) {
	for _, other := range m.unnamed(join) {
		m.state.Apart[pairKey(join.Node, other)] = true
	}
	for _, neighbour := range join.Neighbours {
		if pair := pairKey(join.Node, neighbour); m.state.Cut[pair] {
			lifted = append(lifted, pair)
		}
		m.state.join(join.Node, neighbour)
	}
	return lifted
}

// dropJoiner forgets a node that wanted to join: the links that its join lifted are cut again.
func (m *Machine) dropJoiner(node string) {
	if joiner := m.state.Joiners[node]; joiner != nil {
		for _, pair := range joiner.Lifted {
			m.state.Cut[pair] = true
		}
	}
	delete(m.state.Joiners, node)
	if m.state.Stop != nil && len(m.state.Joiners) == 0 {
		m.state.Lacking = time.Time{} // whoever comes next has others waited for from then on
	}
}

// apart reports whether two nodes must not use a direct link.
func (s *state) apart(a, b string) bool {
	pair := pairKey(a, b)
	return s.Cut[pair] || s.Apart[pair]
}

// join lets two nodes use a direct link.
func (s *state) join(a, b string) {
	delete(s.Cut, pairKey(a, b))
	delete(s.Apart, pairKey(a, b))
}

// disconnected yields the pairs of nodes that must not use a direct link, in no order; a pair may come twice.
func (s *state) disconnected() iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, pairs := range []map[string]bool{s.Cut, s.Apart} {
			for pair := range pairs {
				if !yield(pair) {
					return
				}
			}
		}
	}
}
