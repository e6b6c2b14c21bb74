package invariants

import (
	"maps"
	"slices"

	"github.com/reknit/reknit/events"
)

// Stored finds a plan that goes back to a snapshot which its members cannot read as a whole, or not to the newest.
var Stored = Invariant{"training goes back to the newest snapshot that members can read", func(log *Log) []Violation {
	var violations []Violation
	for i, change := range log.changes {
		if change.plan.Snapshot == "" {
			continue
		}
		whole := change.snapshots(log.misread(change))
		maps.DeleteFunc(whole, func(s snapshot, _ bool) bool { return !s.counts(change.plan.Parent, log.changes[:i]) })
		chosen := events.Snapshot{Step: change.plan.ResumeStep, Plan: change.plan.Snapshot}
		if !whole[key(chosen)] {
			violations = append(violations, change.entry.violation("nobody can read all of the snapshot of step %d under %s",
				chosen.Step, chosen.Plan))
		}
		for other := range whole {
			if other.step > chosen.Step {
				violations = append(violations, change.entry.violation("goes back to step %d, and members can read step %d",
					chosen.Step, other.step))
			}
		}
	}
	return violations
}}

// snapshot names one: what has its step and its plan fits together.
type snapshot struct {
	step uint64
	plan string
}

func key(s events.Snapshot) snapshot { return snapshot{s.Step, s.Plan} }

// doubt is what is not believed of a reading: the units in which it differed from others, or all.
type doubt struct {
	units map[int]bool
	all   bool
}

// reading is a snapshot as one node reads it.
type reading struct {
	node string
	of   snapshot
}

// misread returns what is not believed of the readings in which readers differed in an attempt at a change: of each the units that the
// failure names, or all. Others may read such a snapshot. A reader that differs in it again is not believed in any of it.
func (l *Log) misread(change change) map[reading]doubt {
	tried, all := map[string]snapshot{}, map[reading]doubt{}
	for _, schedule := range said[*events.Schedule](l, events.Scheduled) {
		if schedule.Plan.Generation == change.plan.Generation {
			tried[schedule.Negotiation] = snapshot{schedule.StopStep, schedule.Plan.Snapshot}
		}
	}
	for entry, failure := range said[*events.Failure](l, events.RestorationFailed) {
		_, byNode := entry.node()
		from, isOf := tried[failure.Negotiation]
		if !isOf || byNode || failure.Node != "" && len(failure.Units) == 0 {
			continue
		}
		for _, giver := range failure.Givers {
			_, again := all[reading{giver, from}]
			now := doubt{units: map[int]bool{}, all: again || len(failure.Units) == 0}
			for unit := range events.Each(failure.Units) {
				now.units[unit] = true
			}
			all[reading{giver, from}] = now
		}
	}
	return all
}

// counts reports whether a snapshot is of the plan before, or was not undone since it was captured: each later plan went on from its step
// or one after that. O(changes).
func (s snapshot) counts(parent string, before []change) bool {
	if s.plan == parent {
		return true
	}
	for _, later := range slices.Backward(before) {
		if later.commitment.PlanDigest == s.plan {
			return true
		}
		if later.plan.ResumeStep < s.step {
			return false
		}
	}
	return true
}

// snapshots are those of which members can together read all units, without what they misread.
func (c change) snapshots(misread map[reading]doubt) map[snapshot]bool {
	units, whole := map[snapshot]map[int]bool{}, map[snapshot]bool{}
	for node, consent := range c.consents {
		for _, s := range consent.Snapshots {
			not := misread[reading{node, key(s)}]
			if units[key(s)] == nil {
				units[key(s)] = map[int]bool{}
			}
			for unit := range events.Each(s.Units) {
				if !not.all && !not.units[unit] {
					units[key(s)][unit] = true
				}
			}
			whole[key(s)] = len(units[key(s)]) == c.plan.UnitCount()
		}
	}
	maps.DeleteFunc(whole, func(_ snapshot, is bool) bool { return !is })
	return whole
}
