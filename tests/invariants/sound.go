package invariants

import "github.com/reknit/reknit/events"

// sound finds a plan under which a layer is missing, held twice in a pipeline, or out of order, or that is not of this
// cluster.
var sound = Invariant{"every committed plan is valid", func(log *Log) []Violation {
	var violations []Violation
	for _, entry := range log.Plans {
		if entry.Fault != "" {
			violations = append(violations, entry.violation("%s", entry.Fault))
		}
		plan, ok := entry.Payload.(*events.Plan)
		if !ok {
			continue
		}
		if plan.Cluster != entry.Cluster {
			violations = append(violations, entry.violation("a plan of cluster %s in %s", plan.Cluster, entry.Cluster))
		}
		for _, reroute := range plan.Reroutes {
			from, _ := plan.Holds(reroute.From)
			to, _ := plan.Holds(reroute.To)
			if from != to || from.Count() == 0 {
				violations = append(violations, entry.violation("micro-batches of %s, layers %v, go to %s, which holds %v", reroute.From, from, reroute.To, to))
			}
		}
	}
	return violations
}}
