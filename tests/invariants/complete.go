package invariants

import (
	"slices"

	"github.com/reknit/reknit/events"
)

// complete finds a job that ends twice, or without the word of a node that it names, or after whose end something is
// negotiated before a user has training begin anew.
var complete = Invariant{"a job ends once, and nothing is negotiated afterwards", func(log *Log) []Violation {
	var violations []Violation
	var end *Entry
	told := map[uint64]map[string]bool{} // by generation: nodes for whom training is complete
	for _, entry := range log.Events {
		switch payload := entry.Payload.(type) {
		case *events.Digests:
			if payload.Final && told[payload.Generation] == nil {
				told[payload.Generation] = map[string]bool{}
			}
			if payload.Final {
				told[payload.Generation][payload.Node] = true
			}
		case *events.JobEnd:
			if end != nil {
				violations = append(violations, entry.violation("the job ends again, it had ended at %d", end.Sequence))
			}
			untold := func(node string) bool { return !told[payload.Generation][node] }
			if i := slices.IndexFunc(payload.Nodes, untold); i >= 0 {
				violations = append(violations, entry.violation("%s has not told that training is complete", payload.Nodes[i]))
			}
			end = entry
		case *events.JobReset:
			end = nil
		case *events.Opening:
			if end != nil {
				violations = append(violations, entry.violation("%s opens, and the job had ended at %d", payload.Negotiation, end.Sequence))
			}
		}
	}
	return violations
}}
