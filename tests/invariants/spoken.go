package invariants

import "github.com/reknit/reknit/events"

// Spoken finds words that are not of the catalogue and were let in, and words of the catalogue that were not.
var Spoken = Invariant{"every message is an event of the catalogue or is quarantined", func(log *Log) []Violation {
	var violations []Violation
	for _, entry := range log.Events {
		if entry.Fault != "" {
			violations = append(violations, entry.violation("%s", entry.Fault))
		}
	}
	for _, entry := range log.Messages[events.EventStream.Name] {
		refusal := log.refused[entry.Sequence]
		if refusal != nil && entry.Fault == "" && foreignVoice(entry) == "" {
			violations = append(violations, refusal.violation("%s %d is a valid %s", entry.Stream, entry.Sequence, entry.Kind))
		}
	}
	return violations
}}
