package invariants

import "github.com/reknit/reknit/events"

// begins finds training that begins at its first step again, though steps were made that nobody asked to give up.
var begins = Invariant{"training begins anew only where no step was made, or somebody asked for it", func(log *Log) []Violation {
	var violations []Violation
	made, asked, told, newest, begun := false, map[string]bool{}, uint64(0), uint64(0), ""
	for _, entry := range log.Events {
		switch payload := entry.Payload.(type) {
		case *events.ResetRequest:
			asked[entry.Event.ID] = true
		case *events.JobReset:
			if !asked[entry.Event.Cause] && told != payload.Generation { // it is told again each day
				violations = append(violations, entry.violation("training is reset, and nobody asked for it"))
			}
			if payload.Generation < newest {
				violations = append(violations, entry.violation("generation %d is reset behind generation %d", payload.Generation, newest))
				continue
			}
			made, told = false, payload.Generation
		case *events.Commitment:
			newest = max(newest, payload.Generation)
			if payload.Negotiation == begun && made {
				violations = append(violations, entry.violation("%s begins anew, and steps were made", payload.Negotiation))
			}
		case *events.Activation:
			made = true
		case *events.Opening:
			if begun = ""; payload.Begins {
				begun = payload.Negotiation
			}
		}
	}
	return violations
}}

// begun reports whether members hold in a negotiation what they can make at step 0.
func (l *Log) begun(negotiation string) bool {
	for _, opening := range said[*events.Opening](l, events.NegotiationOpened) {
		if opening.Negotiation == negotiation {
			return isBeginning(opening)
		}
	}
	return false
}

// isBeginning reports whether training begins at its first step with a negotiation.
func isBeginning(opening *events.Opening) bool { return opening.Generation == 1 || opening.Begins }
