package machine

import (
	"fmt"
	"slices"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/restorer/migrate"
)

// deal gives the pipelines the lists of optimizer partitions that the planner made, so that with the nodes where they
// are the fewest bytes move, and reports whether that saves any. The planner counts each pipeline's memory with the
// longest list, so any pipeline may have any. O(pipelines * units + pipelines^3).
func (r *restoration) deal() (fewer bool, err error) {
	pipelines := r.plan.Pipelines
	lists, cost := make([][]int, len(pipelines)), make([][]int64, len(pipelines))
	now := int64(0)
	for p := range pipelines {
		lists[p] = pipelines[p].Partitions
		missing := r.missing(p)
		for _, dealt := range pipelines {
			bytes := int64(0)
			for _, partition := range dealt.Partitions {
				bytes += missing[partition]
			}
			cost[p] = append(cost[p], bytes)
		}
		now += cost[p][p]
	}
	one := slices.Repeat([]int{1}, len(pipelines)) // list to each
	flow, err := migrate.Transport(cost, one, one)
	if err != nil {
		return false, fmt.Errorf("which pipeline keeps which partitions: %w", err)
	}
	least := int64(0)
	for p, taken := range flow {
		least += cost[p][slices.Index(taken, 1)]
	}
	if least == now {
		return false, nil
	}
	for p, taken := range flow {
		pipelines[p].Partitions = lists[slices.Index(taken, 1)]
	}
	return true, nil
}

// missing returns how many bytes of each partition the nodes of a pipeline lack.
func (r *restoration) missing(pipeline int) []int64 {
	layers, bytes := r.plan.LayerCount(), make([]int64, r.plan.Partitions())
	for _, stage := range r.plan.Pipelines[pipeline].Stages {
		held := r.heldBy(stage.Node).units
		for partition := range bytes {
			for layer := stage.Layers.First; layer < stage.Layers.End; layer++ {
				if unit := (1+partition)*layers + layer; !held.Has(unit) {
					bytes[partition] += r.Units[unit]
				}
			}
		}
	}
	return bytes
}

// lacked returns how many bytes all nodes together lack of their places.
func (r *restoration) lacked() int64 {
	bytes := int64(0)
	for p, pipeline := range r.plan.Pipelines {
		for s, stage := range pipeline.Stages {
			held := r.heldBy(stage.Node).units
			for unit := range events.Each(r.plan.UnitsAt(events.Place{Pipeline: p, Stage: s})) {
				if !held.Has(unit) {
					bytes += r.Units[unit]
				}
			}
		}
	}
	return bytes
}
