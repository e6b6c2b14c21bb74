package machine

import (
	"math"
	"slices"

	"github.com/reknit/reknit/events"
)

// A process that was given up and comes back claims what it holds, and each claim needs proof. The first plan that names it again ends
// that: what members hold needs none. Units that the plan did not count are of an older history, or of training that was given up since.
// They are not told from then on, until the first step under a plan has the trainer's state drop it.

// eachStep has a unit count whatever the step at which it is held.
const eachStep = math.MaxUint64

// takeStock notes what counts of the trainer's state under a plan that was adopted: under the first one of an incarnation, what that plan
// gives the node, what it has the node give to others, and what it says that the node needs no more. A version at the plan's step counts,
// too, if the node missed that plan alone: the others went on from it. A new script has it from the last one, and has made no step itself.
func (m *Machine) takeStock(plan *events.Plan) {
	if m.plan == nil {
		switch {
		case m.claimable == 0:
			m.counts = nil
		case m.claimable < plan.Generation:
			m.countOnly(plan)
		}
	}
	m.vouchFor(plan.UnitsOf(m.settings.Node)...)
}

// countOnly has nothing count but what the node gives others under a plan, what it needs no more, and what stands at the plan's step where
// the node missed no other plan.
func (m *Machine) countOnly(plan *events.Plan) {
	node, counts := m.settings.Node, map[int]uint64{}
	if m.claimable+1 == plan.Generation {
		for unit := range m.settings.Job.Units() {
			if m.countsNow(unit, plan.ResumeStep) {
				counts[unit] = plan.ResumeStep
			}
		}
	}
	for _, drop := range plan.Migration.Drops {
		if drop.Node == node {
			counts[drop.Unit] = eachStep
		}
	}
	for _, transfer := range plan.Migration.Transfers {
		if slices.ContainsFunc(transfer.Sources, func(source events.Source) bool { return source.Node == node }) {
			counts[transfer.Unit] = eachStep
		}
	}
	m.counts = counts
}

// vouchFor has units count that were verified.
func (m *Machine) vouchFor(units ...events.Range) {
	for unit := range events.Each(units) {
		if m.counts != nil {
			m.counts[unit] = eachStep
		}
	}
}

// countsNow reports whether what the trainer's state holds of a unit at a step counts.
func (m *Machine) countsNow(unit int, step uint64) bool {
	at, counts := m.counts[unit]
	return m.counts == nil || counts && (at == eachStep || at == step)
}

// countedOf returns what counts of what the trainer's state holds.
func (m *Machine) countedOf(held []events.Holding) []events.Holding {
	if m.counts == nil {
		return held
	}
	steps := map[int][]uint64{}
	for _, holding := range held {
		for unit := holding.Units.First; unit < holding.Units.End; unit++ {
			for _, step := range holding.Steps {
				if m.countsNow(unit, step) {
					steps[unit] = append(steps[unit], step)
				}
			}
		}
	}
	return events.HoldingsOf(m.settings.Job.Units(), func(unit int) []uint64 { return steps[unit] })
}
