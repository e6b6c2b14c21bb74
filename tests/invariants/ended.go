package invariants

import "github.com/reknit/reknit/events"

// Ended finds a negotiation that is forgotten, ends twice, or runs beside another. The last one may be open.
var Ended = Invariant{"one negotiation at a time, and each ends once", func(log *Log) []Violation {
	var violations []Violation
	open, generation := "", uint64(1)
	seen := map[string]bool{}
	for _, entry := range log.Events {
		switch payload := entry.Payload.(type) {
		case *events.Opening:
			if open != "" || seen[payload.Negotiation] {
				violations = append(violations, entry.violation("%s opens, open was %q", payload.Negotiation, open))
			}
			if payload.Generation != generation {
				violations = append(violations, entry.violation("opens generation %d, expected %d", payload.Generation, generation))
			}
			open, seen[payload.Negotiation] = payload.Negotiation, true
		case *events.Commitment:
			violations = append(violations, ending(entry, payload.Negotiation, open)...)
			open, generation = "", payload.Generation+1
		case *events.Abort:
			violations = append(violations, ending(entry, payload.Negotiation, open)...)
			open = ""
		}
	}
	return violations
}}

func ending(entry *Entry, negotiation, open string) []Violation {
	if negotiation == open {
		return nil
	}
	return []Violation{entry.violation("%s ends, open was %q", negotiation, open)}
}
