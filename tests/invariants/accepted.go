package invariants

import "github.com/reknit/reknit/events"

// accepted finds a commit over the head of a member: without its consent, or at a step it may have passed already.
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
		for entry, promise := range said[*events.Promise](log, events.Promised) {
			if promise.Negotiation == change.commitment.Negotiation && promise.StopStep > change.plan.ResumeStep {
				violations = append(violations, entry.violation("%s promised to stop at %d, the plan goes on from %d",
					promise.Node, promise.StopStep, change.plan.ResumeStep))
			}
		}
	}
	return violations
}}
