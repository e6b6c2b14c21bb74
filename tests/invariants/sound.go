package invariants

import "github.com/reknit/reknit/events"

// sound finds a plan under which a layer is missing, held twice in a pipeline, or out of order, under which a partition
// of the optimizer state is missing, or that is not of this cluster. A plan alone does not tell into how many
// partitions the state is cut: one without the last of them is valid, and would number the rows otherwise.
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
		job := log.job()
		known := job != nil && entry.Fault == ""
		if known && (plan.LayerCount() != len(job.Layers) || plan.Partitions() != job.OptimizerPartitions) {
			violations = append(violations, entry.violation("%d layers, optimizer state in %d partitions; the job has %d and %d",
				plan.LayerCount(), plan.Partitions(), len(job.Layers), job.OptimizerPartitions))
		}
		for _, reroute := range plan.Reroutes {
			from, _ := plan.Holds(reroute.From)
			to, _ := plan.Holds(reroute.To)
			layers := reroute.Layers
			if layers == (events.Range{}) {
				layers = events.Range{First: max(from.First, to.First), End: min(from.End, to.End)}
			}
			if layers.Count() < 1 || layers.First < max(from.First, to.First) || layers.End > min(from.End, to.End) {
				violations = append(violations, entry.violation("micro-batches of %s, layers %v, go to %s, which holds %v",
					reroute.From, from, reroute.To, to))
			}
		}
	}
	return violations
}}
