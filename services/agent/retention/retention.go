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

// Obsolete returns the parts that nobody needs once so many complete snapshots are kept: those of older ones, those of
// incomplete ones older than the newest that is complete, for they were given up, and those of a history that was left.
func Obsolete(parts []Part, units, keep int, left func(Part) bool) []Part {
	count := slices.DeleteFunc(slices.Clone(parts), left)
	complete := Complete(count, units)
	kept := complete[:min(keep, len(complete))]
	return slices.DeleteFunc(slices.Clone(parts), func(part Part) bool {
		needed := len(kept) == 0 || slices.Contains(kept, part.ID) || Newer(part.ID, kept[0]) < 0
		return needed && !left(part)
	})
}

// Beyond tells the parts of a node that lie beyond a step which it has just trained: training went back since.
func Beyond(step uint64, node string) func(Part) bool {
	return func(part Part) bool { return part.Step > step && part.Node == node }
}

// Room returns which of a node's parts make room for so many bytes more within a bound, the oldest first. Its newest
// whole part stays: until the next one is written there is no other. Ok is false where all the others do not suffice.
func Room(own []Part, more, bound int64) (retire []Part, ok bool) {
	bytes := more
	for _, part := range own {
		bytes += part.Bytes
	}
	sorted := slices.SortedFunc(slices.Values(own), func(a, b Part) int { return Newer(b.ID, a.ID) })
	newest := -1
	for i, part := range sorted {
		if part.Whole {
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
