package invariants

import (
	"slices"

	"github.com/reknit/reknit/events"
)

// active finds a plan that names a node which had not joined, or was lost, restarted or leaving as far as the
// negotiator had heard. A loss ends a negotiation at any time, a wish to leave may wait for the next. The only node that is left stays: nobody
// else holds the layers.
var active = Invariant{"a committed plan names active nodes only", func(log *Log) []Violation {
	var violations []Violation
	for _, change := range log.changes {
		for _, member := range change.plan.Nodes {
			joined, _ := log.joined(member.Node, member.Incarnation, change.opened.Sequence)
			if joined == nil {
				violations = append(violations, change.entry.violation("%s (%s) never asked to join", member.Node,
					member.Incarnation))
				continue
			}
			if gone, what := log.gone(member, joined.Sequence, change); gone != nil {
				violations = append(violations, change.entry.violation("%s (%s) %s at %d, negotiated from %d to %d",
					member.Node, member.Incarnation, what, gone.Sequence, change.opened.Sequence, change.committed.Sequence))
			}
		}
	}
	return violations
}}

// gone returns what ended a node's membership, if the negotiator had heard it in time.
func (l *Log) gone(member events.Member, since uint64, c change) (*Entry, string) {
	for entry, lost := range said[*events.NodeState](l, events.NodeLost) {
		if lost.Node == member.Node && lost.Incarnation == member.Incarnation && within(entry, since, c.committed.Horizon) {
			return entry, "was lost"
		}
	}
	for entry, join := range said[*events.Join](l, events.JoinRequested) {
		if join.Node == member.Node && join.Incarnation != member.Incarnation && within(entry, since, c.committed.Horizon) {
			return entry, "was started anew"
		}
	}
	if len(c.plan.Nodes) == 1 {
		return nil, ""
	}
	for entry, leave := range said[*events.Leave](l, events.LeaveRequested) {
		if leave.Node == member.Node && within(entry, since, c.opened.Horizon) &&
			!l.refusedSince(member.Node, entry, c.opened.Sequence) &&
			!l.impossible(entry, c.opened.Sequence) {
			return entry, "asked to leave"
		}
	}
	return nil, ""
}

// impossible reports whether there was no plan, between a request and a place in the log: then changes that were asked
// for are negotiated without each other.
func (l *Log) impossible(request *Entry, before uint64) bool {
	return slices.ContainsFunc(l.Events, func(entry *Entry) bool {
		refused := entry.Kind == events.PlanRefused || entry.Kind == events.RestorationRefused
		return refused && entry.Sequence > request.Sequence && entry.Sequence < before
	})
}

// within reports whether an entry lies behind one place of the log and not behind another.
func within(entry *Entry, behind, until uint64) bool {
	return entry.Sequence > behind && entry.Sequence <= until
}

// refusedSince reports whether a node was refused something between a request and a place in the log.
func (l *Log) refusedSince(node string, request *Entry, before uint64) bool {
	for entry, refusal := range said[*events.Refusal](l, events.MembershipRefused) {
		if refusal.Node == node && entry.Sequence > request.Sequence && entry.Sequence < before {
			return true
		}
	}
	return false
}
