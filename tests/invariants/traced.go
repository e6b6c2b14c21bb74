package invariants

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// traced finds a fact that left the trace of its change. A fact from a program without tracing has no trace and is left
// alone.
var traced = Invariant{"one change is one trace", func(log *Log) []Violation {
	var violations []Violation
	for _, entries := range [][]*Entry{log.Events, log.Plans} {
		for _, entry := range entries {
			cause := log.byID[entry.Cause]
			if cause == nil || entry.Traceparent == "" {
				continue
			}
			if got, want := traceOf(entry), traceOf(cause); got != want {
				violations = append(violations, entry.violation("%s is in trace %s, its cause in %s", entry.Kind, got, want))
			}
		}
	}
	return violations
}}

// traceOf returns the trace of an entry; a first cause begins one that its id names.
func traceOf(entry *Entry) string {
	if parts := strings.Split(entry.Traceparent, "-"); len(parts) == 4 {
		return parts[1]
	}
	sum := sha256.Sum256([]byte(entry.ID))
	return hex.EncodeToString(sum[:16])
}
