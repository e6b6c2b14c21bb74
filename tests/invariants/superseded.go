package invariants

import (
	"slices"

	"github.com/reknit/reknit/events"
)

// superseded finds an abort that tells those who promised to stop the contrary of what happens: they would stand still
// for ever, or train on although they are asked again. Everything that an event makes the negotiator say has that event
// for its cause.
var superseded = Invariant{"an abort says whether another negotiation follows", func(log *Log) []Violation {
	var violations []Violation
	for entry, abort := range said[*events.Abort](log, events.Aborted) {
		behind := log.behind(entry)
		opens := slices.ContainsFunc(behind, func(next *Entry) bool {
			return next.Kind == events.NegotiationOpened && next.Cause == entry.Cause
		})
		goesOn := slices.ContainsFunc(behind, func(next *Entry) bool {
			return next.Source == entry.Source && next.Cause != "" && next.Cause != entry.Cause
		})
		if opens && !abort.Superseded || !opens && goesOn && abort.Superseded {
			violations = append(violations, entry.violation("%s ends, superseded: %v; another follows: %v", abort.Negotiation,
				abort.Superseded, opens))
		}
	}
	return violations
}}

// behind returns what the event stream holds behind an entry.
func (l *Log) behind(entry *Entry) []*Entry {
	return l.Events[slices.Index(l.Events, entry)+1:]
}
