// Package retention decides which snapshots of a tier are complete, and which of their parts nobody needs any more.
package retention

import (
	"cmp"
	"slices"
	"time"
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

// Newer orders snapshots, the newest first. The order of two at one step tells nothing, but is always the same.
func Newer(a, b ID) int { return cmp.Or(cmp.Compare(b.Step, a.Step), cmp.Compare(b.Plan, a.Plan)) }

// Complete returns the snapshots whose whole parts hold so many different units, the newest first.
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

// Told returns which snapshots of those that the cluster says are complete a node has its own whole part of, in their order, the
// one that was told last first: of a tier that only one node reads, the parts tell nobody what is complete.
func Told(own []Part, told []ID) []ID {
	var complete []ID
	for _, id := range told {
		lies := slices.ContainsFunc(own, func(part Part) bool { return part.Whole && part.ID == id })
		if lies && !slices.Contains(complete, id) {
			complete = append(complete, id)
		}
	}
	return complete
}

// foremost is how many snapshots of each tier are named before any that may not be complete: more than are kept.
const foremost = 4

// Named returns which snapshots a node names that can read more than it may name: the last few of each tier that the cluster said are
// complete, and beside them the newest. Else those would crowd them out that a slow or full disk left incomplete. The newest comes first.
func Named(readable []ID, told map[string][]ID, most int) []ID {
	first := map[ID]bool{}
	for _, complete := range told {
		known := slices.DeleteFunc(slices.Clone(complete), func(id ID) bool { return !slices.Contains(readable, id) })
		for _, id := range known[:min(foremost, len(known))] {
			first[id] = true
		}
	}
	named := slices.SortedFunc(slices.Values(readable), func(a, b ID) int {
		switch {
		case first[a] == first[b]:
			return Newer(a, b)
		case first[a]:
			return -1
		}
		return 1
	})
	named = named[:min(most, len(named))]
	slices.SortFunc(named, Newer)
	return named
}

// History is the one that counts: steps up to Resume, and beyond them what was trained under Plan.
type History struct {
	Resume uint64 // the step from which the plan in force went on
	Plan   string // its digest
	Parent string // that of the plan before it; empty: none was
	// Logged is when the log took that plan; zero: nobody knows.
	Logged time.Time
}

// Begun is a plan under which somebody has begun to write to a tier.
type Begun struct {
	Plan   string    // its digest
	Logged time.Time // when the log took it
}

// IsOutdone reports whether somebody has begun to write to a tier under a plan that the log took later. A node that trains under the older
// one was frozen or cut off. The parts that were written since are of another history to it, and it may remove nothing. Generations would
// not tell: those of a log that was lost are counted again. The plan before is older, whatever the log's clock says, which may have been
// set back.
func (h History) IsOutdone(begun []Begun) bool {
	logged := h.Logged // by two logs, where one was lost, the same plan was taken twice
	for _, b := range begun {
		if b.Plan == h.Plan && b.Logged.After(logged) {
			logged = b.Logged
		}
	}
	return slices.ContainsFunc(begun, func(b Begun) bool { return b.Plan != h.Plan && b.Plan != h.Parent && b.Logged.After(logged) })
}

// left tells a snapshot of a history that was left, because training went back.
func (h History) left(id ID) bool { return id.Step > h.Resume && id.Plan != h.Plan }

// Counts returns the snapshots of the history that counts, in their order.
func (h History) Counts(ids []ID) []ID {
	return slices.DeleteFunc(slices.Clone(ids), h.left)
}

// older reports whether a snapshot is older than another. One of the plan before is not older than one of an earlier plan, whatever their
// steps are: training may have gone back between these two.
func (h History) older(id, than ID) bool {
	mayGoBack := id.Plan == h.Parent && than.Plan != h.Parent && than.Plan != h.Plan
	return !mayGoBack && Newer(than, id) < 0
}

// Obsolete returns the parts that nobody needs: those of histories that were left, once a snapshot of the one that counts
// is complete since, and those older than so many complete ones of it, for what was not complete by then was given up.
// Until so many are known to be complete older ones are kept: one of them may have been, which an agent that was started
// since did not hear. Until one is, all are: a history that begins by mistake takes nothing away. Complete are the
// complete snapshots, the one that was told last first: the cluster tells only what is newer than all that it told before.
// Steps do not tell, for those that were undone and trained again count twice, under two plans.
func Obsolete(parts []Part, complete []ID, keep int, history History) []Part {
	isNoneSince := len(complete) == 0 || history.left(complete[0])
	complete = history.Counts(complete)
	kept := complete[:min(keep, len(complete))]
	return slices.DeleteFunc(slices.Clone(parts), func(part Part) bool {
		switch {
		case len(kept) == 0:
			return true
		case history.left(part.ID):
			return isNoneSince
		}
		return len(kept) < keep || slices.Contains(kept, part.ID) || !history.older(part.ID, kept[0])
	})
}

// Bound is how much is kept of a tier.
type Bound struct {
	Bytes int64 // of all parts
	Parts int   // of one node
}

// Room returns which parts make room for the next one within a bound: those that are not whole, for they are of a write
// that ended; those of histories that were left; and then the oldest. A part of the newest complete snapshot stays, and
// where none is complete the newest whole part. Ok is false where all the others do not suffice.
func Room(own []Part, next Part, complete []ID, bound Bound, history History) (retire []Part, ok bool) {
	bytes, count := next.Bytes, 1
	for _, part := range own {
		bytes += part.Bytes
		if part.Node == next.Node {
			count++
		}
	}
	for _, part := range Spare(own, complete, history) {
		crowds := part.Node == next.Node && count > bound.Parts
		if part.Whole && bytes <= bound.Bytes && !crowds {
			continue
		}
		retire, bytes = append(retire, part), bytes-part.Bytes
		if part.Node == next.Node {
			count--
		}
	}
	return retire, bytes <= bound.Bytes
}

// Spare returns the parts that may be given up where there is no room, the first to go first.
func Spare(own []Part, complete []ID, history History) []Part {
	last := newest(own, complete, history)
	spare := slices.DeleteFunc(slices.Clone(own), func(part Part) bool { return part.Whole && part.ID == last })
	rank := func(part Part) int {
		switch {
		case !part.Whole:
			return 0
		case history.left(part.ID):
			return 1
		}
		return 2
	}
	slices.SortFunc(spare, func(a, b Part) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), Newer(b.ID, a.ID)) })
	return spare
}

// IsOpen reports whether a part may be of the newest complete snapshot, for all that its node knows: it is whole, and neither older than the
// complete one of the history that counts which was told last nor of a history that was left. A node hears that a snapshot is complete
// after the others may have, which then give up the one before.
func IsOpen(part Part, complete []ID, history History) bool {
	counts := history.Counts(complete)
	if !part.Whole {
		return false
	}
	return len(counts) == 0 || !history.left(part.ID) && part.ID != counts[0] && !history.older(part.ID, counts[0])
}

// newest returns the snapshot that a node's parts must not be taken of: the newest complete one of the history that
// counts, else of any, and else the newest that the node has a whole part of.
func newest(own []Part, complete []ID, history History) ID {
	var whole []ID
	for _, part := range own {
		if part.Whole {
			whole = append(whole, part.ID)
		}
	}
	slices.SortFunc(whole, Newer)
	for _, ids := range [][]ID{history.Counts(complete), complete, history.Counts(whole), whole} {
		if len(ids) > 0 {
			return ids[0]
		}
	}
	return ID{}
}
