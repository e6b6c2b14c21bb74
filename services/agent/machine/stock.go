package machine

import "github.com/reknit/reknit/events"

// A process that was given up and comes back claims what it holds, and each claim needs proof. The first plan that names it again ends
// that: what members hold needs none. Units that the plan did not count are of an older history, or of training that was given up since.
// They are not told from then on, until the first step under a plan has the trainer's state drop it.

// takeStock notes what counts of the trainer's state under a plan that was adopted: under the first one of an incarnation, what that plan
// gives the node, what it has the node give to others, and what it says that the node needs no more.
func (m *Machine) takeStock(plan *events.Plan) {
	if m.plan == nil {
		missed := m.claimable+1 == plan.Generation && m.done == plan.ResumeStep
		switch {
		case m.claimable == 0:
			m.counts = nil
		case m.claimable < plan.Generation && !missed:
			m.countOnly(plan)
		}
	}
	m.vouchFor(plan.UnitsOf(m.settings.Node)...)
}

// countOnly has nothing count but what the node gives others under a plan, and what it needs no more.
func (m *Machine) countOnly(plan *events.Plan) {
	node := m.settings.Node
	m.counts = map[int]bool{}
	for _, drop := range plan.Migration.Drops {
		m.counts[drop.Unit] = m.counts[drop.Unit] || drop.Node == node
	}
	for _, transfer := range plan.Migration.Transfers {
		for _, source := range transfer.Sources {
			m.counts[transfer.Unit] = m.counts[transfer.Unit] || source.Node == node
		}
	}
}

// vouchFor has units count that were verified.
func (m *Machine) vouchFor(units ...events.Range) {
	for unit := range events.Each(units) {
		if m.counts != nil {
			m.counts[unit] = true
		}
	}
}

// countsNow reports whether what the trainer's state holds of a unit counts.
func (m *Machine) countsNow(unit int) bool { return m.counts == nil || m.counts[unit] }

// countedOf returns what counts of what the trainer's state holds.
func (m *Machine) countedOf(held []events.Holding) []events.Holding {
	if m.counts == nil {
		return held
	}
	steps := map[int][]uint64{}
	for _, holding := range held {
		for unit := holding.Units.First; unit < holding.Units.End; unit++ {
			if m.counts[unit] {
				steps[unit] = holding.Steps
			}
		}
	}
	return events.HoldingsOf(m.settings.Job.Units(), func(unit int) []uint64 { return steps[unit] })
}
