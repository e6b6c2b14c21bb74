package invariants

import (
	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/ledger"
)

// wholeBatch finds a plan that skips samples or trains some twice. What each pipeline trains in a step is part of what
// makes a plan valid; here is what links one plan to the next.
var wholeBatch = Invariant{"every plan goes on in the data where its step stands", func(log *Log) []Violation {
	var violations []Violation
	var plans []ledger.Plan
	job := log.job()
	for _, entry := range log.Plans {
		plan, ok := entry.Payload.(*events.Plan)
		if !ok {
			continue
		}
		plans = append(plans, ledger.Plan{
			Generation: plan.Generation, ResumeStep: plan.ResumeStep, Consumed: plan.Data.ConsumedSamples,
			GlobalBatch: uint64(plan.Data.GlobalBatch),
		})
		if job != nil {
			violations = append(violations, ruled(entry, plan, job)...)
		}
		for _, pipeline := range plan.Pipelines {
			violations = append(violations, rerouted(entry, plan, pipeline)...)
		}
	}
	if last := len(plans) - 1; last >= 0 {
		if err := ledger.Check(plans, asPlanned(plans), plans[last].ResumeStep); err != nil {
			violations = append(violations, log.Plans[len(log.Plans)-1].violation("%v", err))
		}
	}
	return violations
}}

// asPlanned notes for each step up to the last plan what the plans say that it trains.
func asPlanned(plans []ledger.Plan) []ledger.Entry {
	var entries []ledger.Entry
	for i, plan := range plans[:len(plans)-1] {
		first := plan.Consumed
		for step := plan.ResumeStep; step < plans[i+1].ResumeStep; step++ {
			entries = append(entries, ledger.Entry{
				Generation: plan.Generation, Step: step, First: first, End: first + plan.GlobalBatch,
			})
			first += plan.GlobalBatch
		}
	}
	return entries
}

// ruled finds a batch or a learning rate that is not the one that the job says for so many nodes.
func ruled(entry *Entry, plan *events.Plan, job *events.Job) []Violation {
	batch, scale := job.BatchOf(len(plan.Nodes))
	var violations []Violation
	if plan.Data.GlobalBatch != batch {
		violations = append(violations, entry.violation("%d samples a step, expected %d", plan.Data.GlobalBatch, batch))
	}
	if job.BatchRule != nil && plan.LearningRateScale != scale {
		violations = append(violations, entry.violation("a scale of %v, expected %v", plan.LearningRateScale, scale))
	}
	return violations
}

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
			violations = append(violations, entry.violation("%d of the %d micro-batches of %s are taken over", taken,
				pipeline.MicroBatches, stage.Node))
		}
	}
	return violations
}
