package world

import (
	"maps"

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
	witnesses := map[*process]bool{}
	for _, n := range w.nodes {
		if p := n.process; p != nil && p.state.trained[unit] {
			witnesses[p] = !w.copiesOf(unit, p.done)[n.name]
		}
	}
	return witnesses
}

// copiesOf returns the nodes that have a unit from others, by whichever plan, since replicas at a step were compared last. One to whom two
// gave it together that have it from nobody is none of them: these two agreed.
func (w *World) copiesOf(unit int, step uint64) map[string]bool {
	copies := map[string]bool{}
	for _, event := range w.hub.plans() {
		plan, err := events.Open[events.Plan](event)
		if err != nil || plan.ResumeStep/w.compareEvery != step/w.compareEvery {
			continue // see checkStored
		}
		taken := map[string]bool{}
		for _, transfer := range plan.Migration.Transfers {
			if transfer.Unit == unit {
				taken[transfer.To] = !isAgreed(transfer.Sources, copies)
			}
		}
		maps.Copy(copies, taken)
	}
	return copies
}

// isAgreed reports whether two give a unit together that are no copies.
func isAgreed(sources []events.Source, copies map[string]bool) bool {
	givers := map[string]bool{}
	for _, source := range sources {
		if !copies[source.Node] {
			givers[source.Node] = true
		}
	}
	return len(givers) > 1
}
