package protocol

import (
	"cmp"
	"maps"
	"slices"
)

// Snapshot tells what was captured: units fit together where both are alike.
type Snapshot struct {
	Plan            string `json:"plan"`            // digest of that under which it was captured
	ConsumedSamples uint64 `json:"consumedSamples"` // position in the data, after the step
}

// Stored is what one node can read of a snapshot, at one step.
type Stored struct {
	Held     Held
	Snapshot Snapshot
}

// SnapshotPoint returns the newest step of which nodes can together read all units of one snapshot: what was captured
// under two plans does not fit together. Holders are who can read what. A node that speaks of a step that nobody
// reached fails to read it, before anybody goes there. O(stored x units).
func SnapshotPoint(units int, stored []Stored) (resume Resume, from Snapshot, ok bool) {
	held := map[Snapshot][]Held{}
	for _, s := range stored {
		held[s.Snapshot] = append(held[s.Snapshot], s.Held)
	}
	for _, of := range slices.SortedFunc(maps.Keys(held), compare) {
		point, _, complete := ResumePoint(units, held[of])
		if complete && (!ok || point.Step > resume.Step) {
			resume, from, ok = point, of, true
		}
	}
	return resume, from, ok
}

func compare(a, b Snapshot) int {
	return cmp.Or(cmp.Compare(a.Plan, b.Plan), cmp.Compare(a.ConsumedSamples, b.ConsumedSamples))
}
