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

// SnapshotPoint returns the newest step of which nodes can together read all units of one snapshot: what was captured
// under two plans does not fit together. Holders are who can read what. Whoever speaks of a step that nobody reached
// fails to read it, and that before anybody goes there. O(stored x units).
func SnapshotPoint(units int, stored []Stored) (resume Resume, plan string, ok bool) {
	byPlan := map[string][]Held{}
	for _, s := range stored {
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
