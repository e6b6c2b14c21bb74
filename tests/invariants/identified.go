package invariants

import "bytes"

// Identified finds an id that stands for two facts: one of them would be dropped as a repeat somewhere.
var Identified = Invariant{"no two events have one id and different data", func(log *Log) []Violation {
	var violations []Violation
	first := map[string]*Entry{}
	for _, entries := range [][]*Entry{log.Events, log.Plans} {
		for _, entry := range entries {
			before := first[entry.ID]
			if before == nil {
				first[entry.ID] = entry
			} else if before.Kind != entry.Kind || !bytes.Equal(before.Data, entry.Data) {
				violations = append(violations, entry.violation("id %s was said at %s %d with other words", entry.ID, before.Stream,
					before.Sequence))
			}
		}
	}
	return violations
}}
