package policy

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/reknit/reknit/services/planner/estimate"
	"github.com/reknit/reknit/services/planner/takeover"
)

// part is some layers that are passed together, by micro-batches of these lost stages.
type part struct {
	layers estimate.Range
	lost   []int
}

// divide divides the micro-batches at these layers, of which each run is passed at one survivor.
func (s Situation) divide(crew survivors, lost []lostStage, runs []estimate.Range) (taken, error) {
	parts, works, err := s.parts(crew, lost, runs)
	if err != nil {
		return taken{}, err
	}
	shares, end, err := takeover.Divide(works, crew.workers, crew.floor)
	if unfit := (takeover.Unfit{}); errors.As(err, &unfit) {
		part := parts[unfit.Work]
		return taken{}, fmt.Errorf("no survivor has memory for all micro-batches at %s of %s", said(part.layers), lost[part.lost[0]].Node)
	}
	t := taken{seconds: end, peaks: maps.Clone(crew.peaks)}
	dealt := make([][]span, len(lost))
	for i, part := range parts {
		shares, workers := slices.Clone(shares[i]), works[i].Workers
		for at, share := range shares {
			t.peaks[crew.stages[workers[at]].Node] += works[i].FilledBytes(share)
		}
		for _, of := range part.lost {
			dealt[of] = append(dealt[of], lost[of].rerouted(part.layers, crew.stages, workers, shares)...)
		}
	}
	for of, stage := range lost {
		t.reroutes = append(t.reroutes, stage.merged(dealt[of], crew.stages)...)
	}
	return t, nil
}

// parts are the runs that somebody lost, with what there is to do at each and who may do it.
func (s Situation) parts(crew survivors, lost []lostStage, runs []estimate.Range) (parts []part, works []takeover.Work, err error) {
	for _, run := range runs {
		part, work := part{layers: run}, takeover.Work{}
		for i, stage := range lost {
			if stage.Layers.Shared(run) > 0 {
				part.lost = append(part.lost, i)
				work.Pieces += stage.microBatches
				work.InFlight += stage.inFlight
			}
		}
		if len(part.lost) == 0 {
			continue
		}
		for i, stage := range crew.stages {
			if stage.Layers.Shared(run) > 0 {
				work.Workers = append(work.Workers, i)
			}
		}
		if len(work.Workers) == 0 {
			return nil, nil, fmt.Errorf("no survivor holds %s of %s", said(run), lost[part.lost[0]].Node)
		}
		for _, layer := range s.Layers[run.First:run.End] {
			work.Seconds += layer.ForwardSeconds + layer.BackwardSeconds
			work.Bytes += layer.ActivationBytes
		}
		parts, works = append(parts, part), append(works, work)
	}
	return parts, works, nil
}

// said is layers as people count them.
func said(layers estimate.Range) string {
	if layers.Len() == 1 {
		return fmt.Sprintf("layer %d", layers.First)
	}
	return fmt.Sprintf("layers %d-%d", layers.First, layers.End-1)
}

// span is a reroute, and how many micro-batches of the lost stage pass its layers elsewhere before.
type span struct {
	Reroute
	before int
}

// rerouted gives a lost stage's micro-batches at some layers to workers, in order, out of the shares that these have left.
func (l lostStage) rerouted(layers estimate.Range, stages []Stage, workers, shares []int) []span {
	var spans []span
	before := 0
	for at, worker := range workers {
		count := min(shares[at], l.microBatches-before)
		if count == 0 {
			continue
		}
		spans = append(spans, span{Reroute{l.Node, stages[worker].Node, l.stage, count, layers}, before})
		before += count
		shares[at] -= count
	}
	return spans
}

// merged joins the spans of a lost stage in which the same micro-batches pass layers next to each other at one node. Those
// that come first at their layers stand before others.
func (l lostStage) merged(spans []span, stages []Stage) []Reroute {
	var joined []span
	open := map[span]int{} // by the span as if it ended where the next begins
	for _, next := range spans {
		key := next
		key.Layers = estimate.Range{First: next.Layers.First, End: next.Layers.First}
		at, goesOn := open[key]
		if !goesOn {
			at, joined = len(joined), append(joined, next)
		}
		joined[at].Layers.End = next.Layers.End
		key.Layers = estimate.Range{First: next.Layers.End, End: next.Layers.End}
		open[key] = at
	}
	slices.SortStableFunc(joined, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.before, b.before), cmp.Compare(a.Layers.First, b.Layers.First))
	})
	held := make(map[string]estimate.Range, len(stages))
	for _, stage := range stages {
		held[stage.Node] = stage.Layers
	}
	var reroutes []Reroute
	for _, span := range joined {
		if span.Layers.Len() == l.Layers.Shared(held[span.To]) {
			span.Layers = estimate.Range{}
		}
		reroutes = append(reroutes, span.Reroute)
	}
	return reroutes
}
