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

// misread are the snapshots, by reader, of which readers offered different bytes in an attempt at a change, and nobody could tell which were
// right. Others may read such a snapshot.
func (l *Log) misread(change change) map[string]map[snapshot]bool {
	tried, misread := map[string]snapshot{}, map[string]map[snapshot]bool{}
	for _, schedule := range said[*events.Schedule](l, events.Scheduled) {
		if schedule.Plan.Generation == change.plan.Generation {
			tried[schedule.Negotiation] = snapshot{schedule.StopStep, schedule.Plan.Snapshot}
		}
	}
	for _, failure := range said[*events.Failure](l, events.RestorationFailed) {
		from, isOf := tried[failure.Negotiation]
		if !isOf || failure.Node != "" {
			continue
		}
		for _, giver := range failure.Givers {
			if misread[giver] == nil {
				misread[giver] = map[snapshot]bool{}
			}
			misread[giver][from] = true
		}
	}
	return misread
}

// counts reports whether a snapshot is of the plan before, or was not undone since it was captured: each later plan went on from its step or
// one after that. O(changes).
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
func (c change) snapshots(misread map[string]map[snapshot]bool) map[snapshot]bool {
	units, whole := map[snapshot]map[int]bool{}, map[snapshot]bool{}
	for node, consent := range c.consents {
		for _, s := range consent.Snapshots {
			if misread[node][key(s)] {
				continue
			}
			if units[key(s)] == nil {
				units[key(s)] = map[int]bool{}
			}
			for unit := range events.Each(s.Units) {
				units[key(s)][unit] = true
			}
			whole[key(s)] = len(units[key(s)]) == c.plan.UnitCount()
		}
	}
	maps.DeleteFunc(whole, func(_ snapshot, is bool) bool { return !is })
	return whole
}
