package invariants

import "github.com/reknit/reknit/events"

// accepted finds a commit over the head of a member: without its consent, or at a step it may have passed already. A promise binds
// who trains under the plan before: one that the plan gave no place may promise by a step that it gives up meanwhile.
var accepted = Invariant{"nothing is committed that a member did not accept", func(log *Log) []Violation {
	var violations []Violation
	for _, change := range log.changes {
		for _, member := range change.opening.Members {
			consent := change.consents[member.Node]
			if consent == nil || !consent.Accepted || consent.Incarnation != member.Incarnation {
				violations = append(violations, change.committed.violation("no consent of %s (%s)", member.Node,
					member.Incarnation))
			}
		}
		trains := log.placedBefore(change.plan.Generation)
		for entry, promise := range said[*events.Promise](log, events.Promised) {
			if promise.Negotiation == change.commitment.Negotiation && promise.StopStep > change.plan.ResumeStep &&
				trains(promise.Node) {
				violations = append(violations, entry.violation("%s promised to stop at %d, the plan goes on from %d",
					promise.Node, promise.StopStep, change.plan.ResumeStep))
			}
		}
	}
	return violations
}}

// placedBefore returns whether a node trains under the plan before a generation. All may where the log does not tell.
func (l *Log) placedBefore(generation uint64) func(node string) bool {
	for _, entry := range l.Plans {
		if plan, ok := entry.Payload.(*events.Plan); ok && plan.Generation+1 == generation {
			return func(node string) bool {
				_, placed := plan.Holds(node)
				return placed
			}
		}
	}
	return func(string) bool { return true }
}
