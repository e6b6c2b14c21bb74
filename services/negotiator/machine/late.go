package machine

import (
	"fmt"
	"slices"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

// late returns the leavers that the others cannot do without by their deadlines, as the moves are planned, and for how
// long they are needed.
func (m *Machine) late() (nodes []string, needs float64) {
	under := m.state.Negotiation
	needs = under.Plan.Predicted.TransitionSeconds
	if !under.Opening.Abandon { // else all stand still already
		needs = protocol.DrainSeconds(m.stepSeconds(), needs)
	}
	for _, change := range under.Opening.Changes {
		deadline, has := m.state.Deadlines[change.Node]
		if has && change.Kind == events.ChangeLeave && needs > deadline.Sub(m.cause.Logged).Seconds() {
			nodes = append(nodes, change.Node)
		}
	}
	return nodes, needs
}

// spareLate has the others take from each other what late leavers were to give them, where somebody else holds it: the
// change goes on as the loss that it will be. It reports whether the moves are to be planned anew for that.
func (n *negotiation) spareLate(late []string) bool {
	spared := len(n.Spared)
	for _, node := range late {
		if len(n.takenFrom(node)) > 0 && !slices.Contains(n.Spared, node) {
			n.Spared = append(n.Spared, node)
		}
	}
	return len(n.Spared) > spared
}

// sayLate tells leavers, before any deadline has passed, that the others need longer.
func (m *Machine) sayLate(late []string, needs float64) {
	for _, node := range late {
		left := max(0, m.state.Deadlines[node].Sub(m.cause.Logged).Seconds())
		what := "the others have all that it holds, and it may go at its deadline"
		alone := m.state.Negotiation.takenFrom(node)
		if len(alone) > 0 {
			name := func(unit int) string { return events.UnitName(unit, len(m.state.Job.Layers)) }
			what = "nobody who stays holds " + named(alone, name) + ", which is lost if it goes before"
		}
		delay := &events.LeaveDelay{
			Node: node, Incarnation: m.state.Members[node].Incarnation, Seconds: needs, DeadlineSeconds: left, Alone: rangesOf(alone),
			Reason: fmt.Sprintf("the others need %.0f s to do without it, and it has %.0f s: %s", needs, left, what),
		}
		m.say(events.LeaveDelayed, node, delay)
	}
}

// delayLeaves tells leavers that nobody does without them while a step is held, and why.
func (m *Machine) delayLeaves(tells func(node string) bool) {
	units, holders := m.state.placed(), map[int]int{}
	for _, held := range units {
		for _, unit := range held {
			holders[unit]++
		}
	}
	for _, change := range m.state.Pending {
		leaver := m.state.Members[change.Node]
		if change.Kind != events.ChangeLeave || leaver == nil || !tells(change.Node) {
			continue
		}
		alone := slices.DeleteFunc(units[change.Node], func(unit int) bool { return holders[unit] > 1 })
		delay := &events.LeaveDelay{
			Node: change.Node, Incarnation: leaver.Incarnation,
			DeadlineSeconds: max(0, m.state.Deadlines[change.Node].Sub(m.cause.Logged).Seconds()),
			Alone:           rangesOf(alone),
			Reason:          events.Brief("nobody can do without it before the step is released: " + m.state.Poison.Why),
		}
		m.say(events.LeaveDelayed, change.Node, delay)
	}
}

func rangesOf(units []int) (ranges []events.Range) {
	for _, span := range protocol.Ranges(units) {
		ranges = append(ranges, events.Range{First: span[0], End: span[1]})
	}
	return ranges
}

// takenFrom returns the units that a node is to give, ascending.
func (n *negotiation) takenFrom(node string) []int {
	var units []int
	for _, transfer := range n.Plan.Migration.Transfers {
		if slices.ContainsFunc(transfer.Sources, func(source events.Source) bool { return source.Node == node }) {
			units = append(units, transfer.Unit)
		}
	}
	slices.Sort(units)
	return slices.Compact(units)
}
