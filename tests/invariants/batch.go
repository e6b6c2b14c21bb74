package invariants

import "github.com/reknit/reknit/events"

// wholeBatch finds a plan that skips samples or trains some twice. What each pipeline trains in a step is part of what
// makes a plan valid; here is what links one plan to the next.
var wholeBatch = Invariant{"every plan goes on in the data where its step stands", func(log *Log) []Violation {
	var violations []Violation
	batch := 0
	for _, entry := range log.Plans {
		plan, ok := entry.Payload.(*events.Plan)
		if !ok {
			continue
		}
		if batch == 0 {
			batch = plan.Data.GlobalBatch
		}
		if plan.Data.GlobalBatch != batch {
			violations = append(violations, entry.violation("%d samples a step, before %d", plan.Data.GlobalBatch, batch))
		}
		if want := plan.ResumeStep * uint64(batch); plan.Data.ConsumedSamples != want {
			violations = append(violations, entry.violation("%d samples consumed at step %d, expected %d", plan.Data.ConsumedSamples, plan.ResumeStep, want))
		}
		for _, pipeline := range plan.Pipelines {
			violations = append(violations, rerouted(entry, plan, pipeline)...)
		}
	}
	return violations
}}

// rerouted finds micro-batches of a lost node that nobody trains, or two do.
func rerouted(entry *Entry, plan *events.Plan, pipeline events.Pipeline) []Violation {
	var violations []Violation
	for _, stage := range pipeline.Stages {
		if _, member := plan.Member(stage.Node); member {
			continue
		}
		taken := 0
		for _, reroute := range plan.Reroutes {
			if reroute.From == stage.Node {
				taken += reroute.MicroBatches
			}
		}
		if taken != pipeline.MicroBatches {
			violations = append(violations, entry.violation("%d of the %d micro-batches of %s are taken over", taken, pipeline.MicroBatches, stage.Node))
		}
	}
	return violations
}
