package invariants

import (
	"slices"

	"github.com/reknit/reknit/events"
)

// followed finds a node that follows layers which no move that had begun was to bring it.
var followed = Invariant{"only who is to receive layers of a move that began follows them", func(log *Log) []Violation {
	begun := map[string][]events.Transfer{} // by negotiation
	var violations []Violation
	for _, entry := range log.Events {
		switch payload := entry.Payload.(type) {
		case *events.PreCopyStart:
			begun[payload.Negotiation] = payload.Plan.Migration.Transfers
		case *events.CaughtUp:
			if !slices.ContainsFunc(begun[payload.Negotiation], func(t events.Transfer) bool { return t.To == payload.Node }) {
				violations = append(violations, entry.violation("%s receives nothing in %s", payload.Node, payload.Negotiation))
			}
		}
	}
	return violations
}}
