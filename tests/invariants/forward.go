package invariants

import "github.com/reknit/reknit/events"

// forward finds a node that goes back to an older plan, trains one nobody committed, or one in which it has no place.
var forward = Invariant{"a node activates committed plans in order", func(log *Log) []Violation {
	plans := map[uint64]*Entry{}
	for _, entry := range log.Plans {
		if plan, ok := entry.Payload.(*events.Plan); ok {
			plans[plan.Generation] = entry
		}
	}
	var violations []Violation
	newest := map[string]uint64{}
	for entry, activation := range said[*events.Activation](log, events.PlanActivated) {
		if activation.Generation <= newest[activation.Node] {
			violations = append(violations, entry.violation("%s activates generation %d after %d", activation.Node, activation.Generation, newest[activation.Node]))
		}
		newest[activation.Node] = max(newest[activation.Node], activation.Generation)
		violations = append(violations, activated(entry, activation, plans[activation.Generation])...)
	}
	return violations
}}

func activated(entry *Entry, activation *events.Activation, committed *Entry) []Violation {
	if committed == nil || committed.Logged.After(entry.Logged) {
		return []Violation{entry.violation("%s activates generation %d, which is not committed", activation.Node, activation.Generation)}
	}
	plan := committed.Payload.(*events.Plan)
	if _, placed := plan.Holds(activation.Node); !placed {
		return []Violation{entry.violation("%s has no place in generation %d", activation.Node, activation.Generation)}
	}
	if activation.Step <= plan.ResumeStep {
		return []Violation{entry.violation("%s activates generation %d at step %d, it begins behind step %d", activation.Node, activation.Generation, activation.Step, plan.ResumeStep)}
	}
	return nil
}
