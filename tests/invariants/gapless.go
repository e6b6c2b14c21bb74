package invariants

import "github.com/reknit/reknit/events"

// gapless finds a log that lost messages or went backwards.
var gapless = Invariant{"a stream's sequences are gapless and its time does not go back", func(log *Log) []Violation {
	var violations []Violation
	for _, stream := range []string{events.EventStream.Name, events.PlanStream.Name} {
		before := &Entry{Stream: stream}
		for _, entry := range log.Messages[stream] {
			if entry.Sequence != before.Sequence+1 {
				violations = append(violations, entry.violation("follows %d", before.Sequence))
			}
			if entry.Logged.Before(before.Logged) {
				violations = append(violations, entry.violation("logged at %v, the one before at %v", entry.Logged, before.Logged))
			}
			before = entry
		}
	}
	return violations
}}
