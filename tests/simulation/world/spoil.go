package world

import (
	"slices"

	"github.com/reknit/reknit/events"
)

// spoil changes one unit that a node trains, as a bit that flips in memory does.
func (w *World) spoil(n *node) {
	if n.process == nil {
		return
	}
	for unit, trained := range n.process.state.trained {
		if trained {
			if w.witnesses[unit] == nil {
				w.witnesses[unit] = w.witnessesOf(unit)
			}
			copied := &n.process.state.kept[unit][0]
			copied.value ^= 1 << 17
			w.stains[unit] = append(w.stains[unit], *copied)
			return
		}
	}
}

// witnessesOf returns the processes that train a unit, but for those who have it from others and were not compared since.
func (w *World) witnessesOf(unit int) map[*process]bool {
	witnesses, plan := map[*process]bool{}, w.newestPlan()
	for _, n := range w.nodes {
		p := n.process
		if p == nil || !p.state.trained[unit] {
			continue
		}
		fetched := plan != nil && p.done/w.compareEvery == plan.ResumeStep/w.compareEvery &&
			slices.ContainsFunc(plan.Migration.Transfers, func(t events.Transfer) bool { return t.Unit == unit && t.To == n.name })
		witnesses[p] = !fetched
	}
	return witnesses
}
