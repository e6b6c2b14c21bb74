package machine

import (
	"fmt"
	"slices"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

const (
	// mostBreaks is how many steps in a row may break that one node was the first to tell, while training does not get on:
	// then the others go on without it.
	mostBreaks = 3
	// mostRetries is how many may break in a row, whoever tells: then the cluster rests before it tries again.
	mostRetries = 5
	// goodSteps is how many steps training makes until the steps that broke before are forgotten.
	goodSteps = 10
	// mostTold bounds by how many broken steps a node may lead all others, of those that it told since training last made
	// goodSteps. Training would crawl for as long as such a node is there.
	mostTold = 10
	// leastAfter is how many of these another must have told first. A node that always tells first may only be the nearest to the hub, or
	// the first whose wait times out: the others are told to give up the step before they find it broken.
	leastAfter = 3
)

// breaks are the steps that broke since training last got on.
type breaks struct {
	Step    uint64         `json:"step"`             // completed steps, to which the last one led back
	Since   time.Time      `json:"since"`            // the first one led back to that very step, by the log's clock
	InARow  int            `json:"inARow"`           // how many led back to that very step
	By      map[string]int `json:"by"`               // of these, by the node that told first
	Told    map[string]int `json:"told"`             // since training last went on for goodSteps, by the nodes that told
	After   map[string]int `json:"after"`            // of these, by the nodes that told after another
	Tellers []string       `json:"tellers"`          // of the last one, in order
	Reason  string         `json:"reason"`           // of the last one told
	Counted string         `json:"counted"`          // the event that told the last one counted
	Dispute dispute        `json:"dispute,omitzero"` // about the one under way
}

// stepBroken has all give up the step that one node cannot end, and go on with the same nodes. The report of any other
// node comes too late, because the step is given up already: it only matters who tells.
func (m *Machine) stepBroken(broken events.BrokenStep) {
	known := &m.state.Breaks
	if !m.inStep(broken) {
		return
	}
	first := !m.state.Paused
	if first {
		m.state.Paused, known.Reason, known.Tellers = true, broken.Reason, nil
		m.state.Pending = append(m.state.Pending, events.Change{Kind: events.ChangeBroken, Node: broken.Node, Cause: m.cause.ID})
		m.state.Hold.InARow = 0
	}
	known.alsoTold(broken.Node)
	outvoted := m.dispute(broken)
	switch {
	case len(outvoted) > 0:
		m.giveUp(outvoted, "outvoted: "+broken.Reason, false)
	case first:
		m.negotiate(protocol.Urgent)
	}
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

// rest has the negotiation of a step that broke end where steps break again and again and training does not get on. The others go on without
// the node that seems to be at fault, if they can do without what it holds. Each of these steps counts as a failure of that node, so that
// it is not back at once. Otherwise the cluster holds, each time for longer, but for no longer than that went on: a change has it tried
// again sooner. It reports whether it ended.
func (m *Machine) rest(resume uint64) bool {
	node, counts := m.countBreak(resume)
	if !counts {
		return false
	}
	known := &m.state.Breaks
	least, stuck := m.settings.HoldTime.Seconds(), m.cause.Logged.Sub(known.Since).Seconds()
	if tie := m.tie(); tie != "" {
		m.ends(tie)
		m.stuckFor(protocol.Grown(least, known.InARow-1), tie)
		return true
	}
	for _, tired := range known.suspects(node) {
		spare, _ := protocol.Spare(m.state.placed(), []string{tired})
		if len(spare) == 0 {
			continue
		}
		reason := fmt.Sprintf("its steps broke again and again and training did not get on, the last: %s", known.Reason)
		delete(known.By, tired)
		clear(known.Told)
		clear(known.After)
		m.noteFailure(tired, m.cause.Logged, 0, mostBreaks)
		m.giveUp(spare, reason, false)
		return true
	}
	if known.InARow < mostRetries {
		return false
	}
	reason := fmt.Sprintf("steps broke %d times and training did not get past step %d, the last: %s",
		known.InARow, known.Step, known.Reason)
	seconds := min(max(least, stuck), protocol.Grown(least, known.InARow-mostRetries))
	m.ends(reason)
	m.stuckFor(seconds, reason)
	return true
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
	known.begin(resume, m.state.Heard)
	known.Counted = changes[i].Cause
	known.InARow++
	if m.tie() != "" {
		return "", true // nobody is to blame
	}
	known.By[changes[i].Node]++
	for i, node := range known.Tellers {
		known.Told[node]++
		if i > 0 {
			known.After[node]++
		}
	}
	return changes[i].Node, true
}

// begin counts from the start where training got on since, or had to go back.
func (b *breaks) begin(resume uint64, at time.Time) {
	if b.Told == nil || b.After == nil || resume < b.Step || resume >= b.Step+goodSteps {
		b.Told, b.After = map[string]int{}, map[string]int{}
	}
	if b.By == nil || b.Since.IsZero() || resume != b.Step {
		b.InARow, b.Since, b.By = 0, at, map[string]int{}
	}
	b.Step = resume
}

// alsoTold notes a node that tells of the step that another told of first.
func (b *breaks) alsoTold(node string) {
	if !slices.Contains(b.Tellers, node) {
		b.Tellers = append(b.Tellers, node)
	}
}

// suspects returns the nodes that the others had better do without, after a step that this one was the first to tell of.
func (b *breaks) suspects(first string) []string {
	var suspects []string
	if b.By[first] >= mostBreaks {
		suspects = append(suspects, first)
	}
	most, second := "", 0
	for node, told := range b.Told {
		if told > b.Told[most] {
			most, second = node, b.Told[most]
		} else {
			second = max(second, told)
		}
	}
	if b.Told[most]-second >= mostTold && b.After[most] >= leastAfter {
		suspects = append(suspects, most)
	}
	return suspects
}
