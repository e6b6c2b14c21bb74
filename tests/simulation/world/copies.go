package world

import (
	"slices"

	"github.com/reknit/reknit/events"
)

// copies are the living ones of a unit at a step.
type copies struct{ held, spoiled, claimed, falsely int }

// count reports whether the negotiator can tell what is right: members do not differ, or more claim it than something
// else.
func (c copies) count() bool { return c.spoiled == 0 && (c.held > 0 || c.claimed > c.falsely) }

// lineage is a step as one plan trained it. Claims of two plans do not go together.
type lineage struct{ generation, step uint64 }

// recoverable reports whether there is a step to go on from, as far as the negotiator counts what living processes
// hold.
func (w *World) recoverable() bool {
	if w.generation() == 0 {
		return true
	}
	if w.reset != nil {
		return w.mayBeginAnew()
	}
	_, whole := w.wholeStep(func(*process) bool { return true })
	if w.undecided {
		return false
	}
	return w.scripts(nil) >= max(1, w.job.Stages.Min) && (whole || w.hasSnapshot()) && !w.lacksNodes()
}

// wholeStep returns the newest step of which some of the living processes hold all units.
func (w *World) wholeStep(among func(*process) bool) (newest uint64, whole bool) {
	all := map[lineage][]copies{} // of each unit
	for _, n := range w.nodes {
		for _, p := range n.processes() {
			if !among(p) {
				continue
			}
			for unit, kept := range p.state.kept {
				for _, v := range kept {
					w.note(all, p, unit, v)
				}
			}
		}
	}
	for at, units := range all {
		if !slices.ContainsFunc(units, func(c copies) bool { return !c.count() }) {
			newest, whole = max(newest, at.step), true
		}
	}
	return newest, whole
}

// note counts a copy, where the newest plan names its holder as held, and otherwise as claimed.
func (w *World) note(all map[lineage][]copies, p *process, unit int, v version) {
	plan := w.newestPlan()
	member, named := events.Member{}, plan == nil
	at := lineage{w.generation(), v.step}
	if plan != nil {
		member, named = plan.Member(p.node.name)
		named = named && member.Incarnation == p.incarnation
	}
	if !named {
		at.generation = p.countsFor(plan, unit, v.step)
	}
	if at.generation < w.anew {
		return // it was given up
	}
	if all[at] == nil {
		all[at] = make([]copies, len(w.job.chains))
	}
	c, right := &all[at][unit], v.value == w.job.value(unit, v.step)
	switch {
	case named && right:
		c.held++
	case named:
		c.spoiled++
	case right:
		c.claimed++
	default:
		c.falsely++
	}
}

// countsFor returns the generation with which a claim counts: the newest, where its plan has the process hold the unit,
// or where the process only missed that plan's commit; and else the one that the process trained under.
func (p *process) countsFor(plan *events.Plan, unit int, step uint64) uint64 {
	within := func(units events.Range) bool { return units.First <= unit && unit < units.End }
	missed := p.claimable+1 == plan.Generation && step == plan.ResumeStep && !p.wentBack
	switch {
	case missed:
		return plan.Generation
	case p.claimable == plan.Generation && !slices.ContainsFunc(plan.UnitsOf(p.node.name), within):
		return 0 // it counts for nothing
	}
	return p.claimable
}
