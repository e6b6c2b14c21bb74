package machine

import (
	"fmt"
	"slices"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

const (
	// mostBreaks is how many steps in a row may break that one node was the first to tell, while training does not get on:
	// then the others go on without it.
	mostBreaks = 3
	// mostRetries is how many may break in a row, whoever tells: then the cluster rests before it tries again.
	mostRetries = 5
)

// breaks are the steps that broke since training last got on.
type breaks struct {
	Step    uint64         `json:"step"`    // completed steps, to which they led back
	InARow  int            `json:"inARow"`  // how many did
	By      map[string]int `json:"by"`      // of these, by the node that told first
	Reason  string         `json:"reason"`  // of the last one told
	Counted string         `json:"counted"` // the event that told the last one counted
}

// stepBroken has all give up the step that one node cannot end, and go on with the same nodes. Whoever else tells so is
// heard too late: the step is given up already.
func (m *Machine) stepBroken(cause events.Event, broken events.BrokenStep) []events.Event {
	if m.state.Paused || !m.inStep(broken) {
		return nil
	}
	m.state.Paused, m.state.Breaks.Reason = true, broken.Reason
	return m.pend(cause, events.Change{Kind: events.ChangeBroken, Node: broken.Node}, protocol.Urgent)
}

// inStep reports whether a node is in the step that it says broke. Since the plan for which all last gave up their
// steps nobody has given up another, so that a step of that plan or of one after it is still broken. A leaver has its
// last steps under a plan before the one in force.
func (m *Machine) inStep(broken events.BrokenStep) bool {
	plan := m.state.Plan
	if plan == nil || broken.Generation < m.state.Abandoned || broken.Generation > plan.Generation {
		return false
	}
	if left, leaves := m.state.Leavers[broken.Node]; leaves && left.Incarnation == broken.Incarnation {
		return broken.Generation < left.Generation
	}
	member := m.state.Members[broken.Node]
	if member == nil || member.Incarnation != broken.Incarnation {
		return false
	}
	_, placed := plan.Holds(broken.Node)
	return broken.Generation < plan.Generation || placed && broken.Step >= plan.ResumeStep
}

// rest ends the negotiation of a step that broke where steps break again and again and training does not get on. Of
// the node that told first most often the others are rid, where they can do without what it holds; each of these steps
// counts as a restart, so that it is not back at once. Otherwise the cluster holds, each time for longer. It returns
// nil where the negotiation may go on to the step to resume at.
func (m *Machine) rest(cause events.Event, resume uint64) []events.Event {
	node, counts := m.countBreak(resume)
	if !counts {
		return nil
	}
	known := &m.state.Breaks
	if spare, _ := protocol.Spare(m.state.placed(), []string{node}); known.By[node] >= mostBreaks && len(spare) > 0 {
		reason := fmt.Sprintf("its steps broke %d times and training did not get on, the last: %s",
			known.By[node], known.Reason)
		delete(known.By, node)
		m.state.Restarts[node] = restart{Count: m.state.Restarts[node].Count + mostBreaks, Last: cause.Logged}
		return m.giveUp(cause, spare, reason, false)
	}
	if known.InARow < mostRetries {
		return nil
	}
	reason := fmt.Sprintf("steps broke %d times and training did not get past step %d, the last: %s",
		known.InARow, known.Step, known.Reason)
	seconds := protocol.Grown(m.settings.HoldTime.Seconds(), known.InARow-mostRetries)
	return m.abort(cause, reason, m.holdFor(seconds, reason))
}

// countBreak counts the broken step that the negotiation under way is about, once, and returns who told it. A loss in
// the same negotiation explains it: then it does not count.
func (m *Machine) countBreak(resume uint64) (node string, counts bool) {
	known, changes := &m.state.Breaks, m.state.Negotiation.Opening.Changes
	i := slices.IndexFunc(changes, func(change events.Change) bool { return change.Kind == events.ChangeBroken })
	explained := slices.ContainsFunc(changes, func(change events.Change) bool {
		return change.Kind == events.ChangeFailure || change.Kind == events.ChangeLinkLost
	})
	if i < 0 || explained || changes[i].Cause == known.Counted {
		return "", false
	}
	if resume != known.Step || known.By == nil { // training got on since, or had to go back
		*known = breaks{Step: resume, By: map[string]int{}, Reason: known.Reason}
	}
	known.Counted = changes[i].Cause
	known.InARow++
	known.By[changes[i].Node]++
	return changes[i].Node, true
}
