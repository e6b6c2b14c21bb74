package world

import (
	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/ledger"
)

// note writes into the ledger which positions of the data a process trained in a pipeline of the step under way: by the
// plan that it was handed, and by the steps that it has completed.
func (p *process) note(pipeline int) {
	if p.share.of != p.plan {
		p.share = shareOf(p.plan, p.node.name)
	}
	position := p.plan.SamplesAt(p.done)
	for _, samples := range p.share.samples[pipeline] {
		p.trained = append(p.trained, ledger.Entry{
			Generation: p.plan.Generation, Step: p.done,
			First: position + uint64(samples.First), End: position + uint64(samples.End),
		})
	}
}

// share is what a process trains of each step's samples under a plan.
type share struct {
	of      *events.Plan
	samples map[int][]events.Range // by pipeline
}

// shareOf looks up a node's share. Who holds the first layer speaks for its pipeline.
func shareOf(plan *events.Plan, node string) share {
	s := share{of: plan, samples: map[int][]events.Range{}}
	if layers, placed := plan.Holds(node); !placed || layers.First > 0 {
		return s
	}
	all := plan.SamplesOf(node)
	for i, pipeline := range plan.Dealt().Pipelines {
		for _, samples := range all {
			first, end := max(samples.First, pipeline.Samples.First), min(samples.End, pipeline.Samples.End)
			if first < end {
				s.samples[i] = append(s.samples[i], events.Range{First: first, End: end})
			}
		}
	}
	return s
}

// checkSamples finds samples that were skipped or trained twice in the steps that count.
func (w *World) checkSamples() {
	var plans []ledger.Plan
	for _, event := range w.hub.plans() {
		plan, err := events.Open[events.Plan](event)
		if err != nil {
			return // see checkStored
		}
		plans = append(plans, ledger.Plan{
			Generation: plan.Generation, ResumeStep: plan.ResumeStep, Consumed: plan.Data.ConsumedSamples,
			GlobalBatch: uint64(plan.Data.GlobalBatch),
		})
	}
	steps := min(w.resumed, w.newest) // all may be gone before they come to the step of the newest plan
	for _, n := range w.nodes {
		if p := n.process; p != nil && p.generation == w.generation() {
			steps = max(steps, p.done)
		}
	}
	if err := ledger.Check(plans, w.trained, steps); err != nil {
		w.violation("%v", err)
	}
}

// checkKind finds a node that a data-parallel plan makes a spare.
func (w *World) checkKind(plan *events.Plan) {
	if plan.Kind != events.DataParallel || len(plan.Nodes) > plan.Data.GlobalBatch/plan.Data.MicroBatch {
		return
	}
	for _, member := range plan.Nodes {
		if _, placed := plan.Holds(member.Node); !placed {
			w.violation("generation %d makes %s a spare", plan.Generation, member.Node)
		}
	}
}
