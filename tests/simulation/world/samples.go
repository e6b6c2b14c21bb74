package world

import (
	"cmp"
	"slices"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/ledger"
)

// note writes into the ledger which positions of the data a process trained in a pipeline of the step under way: by the
// plan that it was handed, and by the steps that it has completed.
func (p *process) note(pipeline int) {
	if p.share.of != p.plan {
		p.share = shareOf(p.plan, p.placesIn(p.plan).dealt, p.node.name)
	}
	position := p.plan.SamplesAt(p.done)
	for _, samples := range p.share.samples[pipeline] {
		p.trained = append(p.trained, ledger.Entry{
			Generation: p.before + p.plan.Generation, Step: p.done,
			First: position + uint64(samples.First), End: position + uint64(samples.End),
		})
	}
	p.foldLedger()
}

// foldAfter is after how many entries those of a step that lie side by side are joined to one: a thousand nodes leave a
// thousand each step.
const foldAfter = 1 << 20

func (w *World) foldLedger() {
	if len(w.trained) < w.folded+foldAfter {
		return
	}
	slices.SortFunc(w.trained, func(a, b ledger.Entry) int {
		return cmp.Or(cmp.Compare(a.Generation, b.Generation), cmp.Compare(a.Step, b.Step), cmp.Compare(a.First, b.First))
	})
	folded := w.trained[:0]
	for _, entry := range w.trained {
		last := len(folded) - 1
		if last >= 0 && folded[last].Generation == entry.Generation && folded[last].Step == entry.Step && folded[last].End == entry.First {
			folded[last].End = entry.End
			continue
		}
		folded = append(folded, entry)
	}
	w.trained, w.folded = folded, len(folded)
}

// share is what a process trains of each step's samples under a plan.
type share struct {
	of      *events.Plan
	samples map[int][]events.Range // by pipeline
}

// shareOf looks up a node's share. The node that holds the first layer speaks for its pipeline.
func shareOf(plan, dealt *events.Plan, node string) share {
	s := share{of: plan, samples: map[int][]events.Range{}}
	if layers, placed := plan.Holds(node); !placed || layers.First > 0 {
		return s
	}
	all := plan.SamplesAtLayer(node, 0)
	for i, pipeline := range dealt.Pipelines {
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
	steps := min(w.resumed, w.newest) // all may be gone before they come to the step of the newest plan
	for _, n := range w.nodes {
		if p := n.process; p != nil && p.generation == w.generation() && p.before == w.before {
			steps = max(steps, p.done)
		}
	}
	if err := ledger.Check(w.planned, w.trained, steps); err != nil {
		w.violation("%v", err)
	}
}

// checkKind finds a node that a data-parallel plan makes a spare, and does not say that its links are too slow. A node
// without a script is one.
func (w *World) checkKind(plan *events.Plan) {
	if plan.Kind != events.DataParallel || len(plan.Nodes) > plan.Data.GlobalBatch/plan.Data.MicroBatch {
		return
	}
	for _, member := range plan.Nodes {
		_, placed := plan.Holds(member.Node)
		p := w.byName(member.Node).process
		hasNone := p != nil && p.stands != nil && p.incarnation == member.Incarnation
		if _, isSlow := plan.IdleOf(member.Node); !placed && !isSlow && !hasNone {
			w.violation("generation %d makes %s a spare", plan.Generation, member.Node)
		}
	}
}
