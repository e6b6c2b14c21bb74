package protocol

import (
	"maps"
	"slices"
)

// Stored is what one node can read of a snapshot, at one step.
type Stored struct {
	Held
	Plan string // digest of the plan under which the snapshot was captured
}

// SnapshotPoint returns the newest step, and not one beyond the last that is possible, of which nodes can together read
// all units of one snapshot: what was captured under two plans does not fit together. Holders are who can read what.
// O(stored x units).
func SnapshotPoint(units int, stored []Stored, last uint64) (resume Resume, plan string, ok bool) {
	byPlan := map[string][]Held{}
	possible := Window{Last: last}
	for _, s := range stored {
		s.Steps = possible.Within(s.Steps)
		byPlan[s.Plan] = append(byPlan[s.Plan], s.Held)
	}
	for _, of := range slices.Sorted(maps.Keys(byPlan)) {
		point, _, complete := ResumePoint(units, byPlan[of])
		if complete && (!ok || point.Step > resume.Step) {
			resume, plan, ok = point, of, true
		}
	}
	return resume, plan, ok
}
