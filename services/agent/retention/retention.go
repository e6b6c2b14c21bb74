// Package retention decides which snapshots of a tier are complete, and which of their parts nobody needs any more.
package retention

import (
	"cmp"
	"slices"
)

// ID names a snapshot. Units of one step that was trained under one plan fit together, and no others do.
type ID struct {
	Step uint64 // completed steps
	Plan string // digest of the plan
}

// Part is what one node wrote of a snapshot.
type Part struct {
	ID
	Node  string
	Units []int // that are there
	Whole bool  // its manifest is there: the node wrote all of its part
	Bytes int64
}

// Newer orders snapshots, the newest first. Of two at one step the order tells nothing, but is always the same.
func Newer(a, b ID) int { return cmp.Or(cmp.Compare(b.Step, a.Step), cmp.Compare(b.Plan, a.Plan)) }

// Complete returns the snapshots whose whole parts hold so many different units, the newest first. Zero units ask for
// one whole part: of a tier that only one node reads nobody but the cluster knows what is complete.
func Complete(parts []Part, units int) []ID {
	held := map[ID]map[int]bool{}
	for _, part := range parts {
		if !part.Whole {
			continue
		}
		if held[part.ID] == nil {
			held[part.ID] = map[int]bool{}
		}
		for _, unit := range part.Units {
			held[part.ID][unit] = true
		}
	}
	var complete []ID
	for id, have := range held {
		if len(have) >= units {
			complete = append(complete, id)
		}
	}
	slices.SortFunc(complete, Newer)
	return complete
}

// History is the one that counts: steps up to Resume, and beyond them what was trained under Plan.
type History struct {
	Resume uint64 // the step from which the plan in force went on
	Plan   string // its digest
}

// left tells a part of a history that was left, because training went back.
func (h History) left(part Part) bool { return part.Step > h.Resume && part.Plan != h.Plan }

// Obsolete returns the parts that nobody needs once so many complete snapshots of a history are kept: those of older
// ones, those of incomplete ones older than the newest that is complete, for they were given up, and those of histories
// that were left. Until one is complete all are kept: a history that begins by mistake takes nothing away.
func Obsolete(parts []Part, units, keep int, history History) []Part {
	complete := Complete(slices.DeleteFunc(slices.Clone(parts), history.left), units)
	kept := complete[:min(keep, len(complete))]
	return slices.DeleteFunc(slices.Clone(parts), func(part Part) bool {
		recent := len(kept) > 0 && (slices.Contains(kept, part.ID) || Newer(part.ID, kept[0]) < 0)
		return len(kept) == 0 || recent && !history.left(part)
	})
}

// Room returns which of a node's parts make room for so many bytes more within a bound: those of histories that were
// left, and then the oldest. The newest whole part that counts stays: until the next one is written there is no other.
// Ok is false where all the others do not suffice.
func Room(own []Part, more, bound int64, history History) (retire []Part, ok bool) {
	bytes := more
	for _, part := range own {
		bytes += part.Bytes
	}
	sorted := slices.SortedFunc(slices.Values(own), func(a, b Part) int { return Newer(b.ID, a.ID) })
	counts := slices.DeleteFunc(slices.Clone(sorted), history.left)
	sorted = append(slices.DeleteFunc(sorted, func(part Part) bool { return !history.left(part) }), counts...)
	newest := -1
	for i, part := range sorted {
		if part.Whole && !history.left(part) {
			newest = i
		}
	}
	for i, part := range sorted {
		if bytes > bound && i != newest {
			retire, bytes = append(retire, part), bytes-part.Bytes
		}
	}
	return retire, bytes <= bound
}
