package invariants

import (
	"cmp"
	"slices"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/ledger"
)

// wholeBatch finds a plan that skips samples or trains some twice. The samples that each pipeline trains in a step are
// part of what makes a plan valid. This invariant is about what links one plan to the next.
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
			GlobalBatch: uint64(plan.Data.GlobalBatch), Skipped: SkippedBy(plan),
		})
		violations = append(violations, unasked(log, entry, plan)...)
		if job != nil {
			violations = append(violations, ruled(entry, plan, job)...)
		}
		for _, pipeline := range plan.Pipelines {
			violations = append(violations, rerouted(entry, plan, pipeline)...)
		}
	}
	plans = sinceTheFirst(plans)
	if last := len(plans) - 1; last >= 0 {
		if err := ledger.Check(plans, asPlanned(plans), plans[last].ResumeStep); err != nil {
			violations = append(violations, log.Plans[len(log.Plans)-1].violation("%v", err))
		}
	}
	return violations
}}

// sinceTheFirst counts the steps and samples of plans from where the first goes on: that is a snapshot where the log of before is lost. It
// returns none where a later plan goes back before that, to what no plan here tells of.
func sinceTheFirst(plans []ledger.Plan) (counted []ledger.Plan) {
	for _, plan := range plans {
		first := plans[0]
		if plan.ResumeStep < first.ResumeStep || plan.Consumed < first.Consumed {
			return nil
		}
		plan.ResumeStep, plan.Consumed = plan.ResumeStep-first.ResumeStep, plan.Consumed-first.Consumed
		counted = append(counted, plan)
	}
	return counted
}

// SkippedBy returns how many samples a plan passes over.
func SkippedBy(plan *events.Plan) uint64 {
	if plan.Data.Skipped == nil {
		return 0
	}
	return uint64(plan.Data.Skipped.Count)
}

// unasked finds samples that a plan passes over though no user had the step skipped that would have trained them: those of such steps
// are passed over, and before them less than a batch.
func unasked(log *Log, entry *Entry, plan *events.Plan) []Violation {
	skipped := plan.Data.Skipped
	if skipped == nil {
		return nil
	}
	if skipped.End() != plan.Data.ConsumedSamples {
		return []Violation{entry.violation("%v are passed over, and it goes on at %d", skipped, plan.Data.ConsumedSamples)}
	}
	var asked []events.Samples
	for told, release := range said[*events.Release](log, events.StepReleased) {
		if release.Skip && !told.Logged.After(entry.Logged) {
			asked = append(asked, release.Samples)
		}
	}
	slices.SortFunc(asked, func(a, b events.Samples) int { return cmp.Compare(a.First, b.First) })
	position, batch := skipped.First, uint64(plan.Data.GlobalBatch)
	for _, stretch := range asked {
		if position < stretch.End() && stretch.First < position+batch { // no whole batch lies before it
			position = stretch.End()
		}
	}
	if position == skipped.End() {
		return nil
	}
	return []Violation{entry.violation("%v are passed over, and what users asked for reaches to %d: expected no whole batch beside it",
		skipped, position)}
}

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

// rerouted finds micro-batches of a lost node that nobody trains at some layer, or two do.
func rerouted(entry *Entry, plan *events.Plan, pipeline events.Pipeline) []Violation {
	var violations []Violation
	for _, stage := range pipeline.Stages {
		if _, member := plan.Member(stage.Node); member {
			continue
		}
		for layer := stage.Layers.First; layer < stage.Layers.End; layer++ {
			if taken := takenAt(plan, stage.Node, layer); taken != pipeline.MicroBatches {
				violations = append(violations, entry.violation("%d of the %d micro-batches of %s are taken over at layer %d", taken,
					pipeline.MicroBatches, stage.Node, layer))
			}
		}
	}
	return violations
}

// takenAt is how many micro-batches of a lost node others take over at a layer that they hold.
func takenAt(plan *events.Plan, lost string, layer int) int {
	taken := 0
	for _, reroute := range plan.Reroutes {
		held, _ := plan.Holds(reroute.To)
		isOf := reroute.Layers.Count() == 0 || reroute.Layers.First <= layer && layer < reroute.Layers.End
		if reroute.From == lost && isOf && held.First <= layer && layer < held.End {
			taken += reroute.MicroBatches
		}
	}
	return taken
}
