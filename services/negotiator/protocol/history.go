package protocol

import "slices"

// History tells which snapshots of plans before the one in force count: up to how many completed steps. Each plan that goes on from an
// older step undoes what the plans before it trained beyond that, and no later step of it brings that back.
type History struct {
	Before uint64 `json:"before"`          // those of plans that are not remembered
	Plans  []Made `json:"plans,omitempty"` // oldest first; each counts up to a later step than the one before it
}

// Made is up to how many completed steps snapshots of a plan count.
type Made struct {
	Plan string `json:"plan"` // its digest
	End  uint64 `json:"end"`
}

// mostMade bounds the memory: so many plans may follow one another without a new snapshot. A snapshot of a plan before them counts up to
// the step at which the last of these ended.
const mostMade = 64

// From returns the history of a plan that goes on from a step. Before is the digest of the plan before it; empty: this is the first.
func (h History) From(before string, resume uint64) History {
	if before == "" {
		return History{Before: resume}
	}
	next := History{Before: min(h.Before, resume)}
	for _, made := range append(slices.Clone(h.Plans), Made{before, resume}) {
		if made.End = min(made.End, resume); made.End > next.Before {
			next.Plans = append(next.Plans, made)
		}
	}
	if beyond := len(next.Plans) - mostMade; beyond > 0 {
		next.Before, next.Plans = next.Plans[beyond-1].End, next.Plans[beyond:]
	}
	return next
}

// Counts reports whether a snapshot of a plan before the one in force counts. O(plans that are remembered).
func (h History) Counts(plan string, step uint64) bool {
	for _, made := range h.Plans {
		if made.Plan == plan {
			return step <= made.End
		}
	}
	return step <= h.Before
}
