// Package invariants judges the recorded log of a cluster: what must never happen, as pure predicates over what was
// said.
package invariants

import (
	"fmt"
	"slices"
)

// Violation is a place in the log where an invariant does not hold.
type Violation struct {
	Invariant string
	Stream    string
	Sequence  uint64
	What      string
}

func (v Violation) String() string {
	return fmt.Sprintf("%s %d: %s: %s", v.Stream, v.Sequence, v.Invariant, v.What)
}

// Invariant is a predicate over a log. Check returns where it does not hold, in the log's order.
type Invariant struct {
	Says  string
	Check func(*Log) []Violation
}

// All lists the invariants that a log can show.
var All = []Invariant{
	gapless, Spoken, Identified, ownVoice,
	chained, sound, active, fitting, wholeBatch,
	Ended, complete, Broken, superseded, accepted, followed, Verified, lost, Stored, OneDigest,
	forward, Answered, traced, begins,
}

// Check judges the log by every invariant.
func (l *Log) Check() []Violation {
	var violations []Violation
	for _, invariant := range All {
		for _, violation := range invariant.Check(l) {
			violation.Invariant = invariant.Says
			violations = append(violations, violation)
		}
	}
	return violations
}

// violation tells what is wrong at an entry.
func (e *Entry) violation(format string, args ...any) Violation {
	return Violation{Stream: e.Stream, Sequence: e.Sequence, What: fmt.Sprintf(format, args...)}
}

// RestsOnWords reports whether an invariant compares what members say with what they or others said: a member that lies breaks
// it, whatever the services do.
func RestsOnWords(says string) bool {
	return slices.ContainsFunc([]Invariant{accepted, Broken, OneDigest, followed, forward, lost, Stored, Verified},
		func(one Invariant) bool { return one.Says == says })
}
