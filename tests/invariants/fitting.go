package invariants

// fitting finds a plan that overfills a node, by the plan's own prediction.
var fitting = Invariant{"no plan needs more memory than a node has", func(log *Log) []Violation {
	var violations []Violation
	for _, change := range log.changes {
		for _, member := range change.plan.Nodes {
			peak := change.plan.Predicted.PeakBytes[member.Node]
			_, join := log.joined(member.Node, member.Incarnation, change.opened.Sequence)
			if join != nil && peak > join.MemoryBytes {
				violations = append(violations, change.entry.violation("%s needs %d bytes and has %d", member.Node, peak,
					join.MemoryBytes))
			}
		}
	}
	return violations
}}
