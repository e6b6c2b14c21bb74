package machine

import (
	"slices"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

// dispute is what trainers said of a step that is not made because they would apply different things.
type dispute struct {
	Spoke   map[string]bool    `json:"spoke,omitempty"`   // trainers that were heard
	Against map[string]against `json:"against,omitempty"` // by trainer that they saw outvoted
	Ties    int                `json:"ties,omitempty"`    // how many saw no side in the majority
	Tie     string             `json:"tie,omitempty"`     // in the words of the last of these
}

// against is how many name a trainer, and whether all of them have taken part for longer.
type against struct {
	By    int  `json:"by"`
	Older bool `json:"older"`
}

// dispute notes what a trainer says of a step that is not made because trainers would apply different things. It returns who is to be done
// without now: whom more than half of the trainers name, or half of them that have all taken part for longer. A node that holds what nobody
// else does is not done without. O(trainers + outvoted).
func (m *Machine) dispute(broken events.BrokenStep) []string {
	known := &m.state.Breaks.Dispute
	if len(broken.Outvoted) == 0 && !broken.Tied || known.Spoke[broken.Node] {
		return nil
	}
	trainers := setOf(m.state.Plan.Ranks())
	if !trainers[broken.Node] {
		return nil
	}
	if known.Spoke == nil {
		known.Spoke, known.Against = map[string]bool{}, map[string]against{}
	}
	known.Spoke[broken.Node] = true
	if len(broken.Outvoted) == 0 {
		known.Ties, known.Tie = known.Ties+1, broken.Reason
	}
	var outvoted []string
	for _, node := range slices.Compact(slices.Sorted(slices.Values(broken.Outvoted))) {
		if !trainers[node] || node == broken.Node {
			continue
		}
		now := known.Against[node]
		now.Older = (now.By == 0 || now.Older) && m.isOlder(broken.Node, node)
		now.By++
		known.Against[node] = now
		if m.state.Members[node] != nil && (2*now.By > len(trainers) || 2*now.By == len(trainers) && now.Older) {
			outvoted = append(outvoted, node)
		}
	}
	if len(outvoted) == 0 {
		return nil
	}
	spare, _ := protocol.Spare(m.state.placed(), outvoted)
	return spare
}

// isOlder reports whether a member has taken part for longer than another.
func (m *Machine) isOlder(node, other string) bool {
	one, two := m.state.Members[node], m.state.Members[other]
	return one != nil && two != nil && one.Since.Before(two.Since)
}

// tie returns why more than half of the trainers say that no side is the majority; empty where fewer do.
func (m *Machine) tie() string {
	if 2*m.state.Breaks.Dispute.Ties <= len(m.state.Plan.Ranks()) {
		return ""
	}
	return m.state.Breaks.Dispute.Tie
}

func setOf(names []string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[name] = true
	}
	return set
}
