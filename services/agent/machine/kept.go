package machine

import "fmt"

// TakesPart reports whether a node is a member of the negotiation under way, or of one that is heard and waits.
func (m *Machine) TakesPart(node string) bool { return m.negotiatesWith(node) }

// CheckStep reports why nobody can have made so many steps: whoever trains under the plan in force is a step ahead of the others at most. A
// node without a place does not know.
func (m *Machine) CheckStep(step uint64) error {
	if m.plan == nil || len(m.plan.plan.UnitsOf(m.settings.Node)) == 0 || step <= m.done+1 {
		return nil
	}
	return fmt.Errorf("step: expected at most %d, one more than this node has made, got %d", m.done+1, step)
}
