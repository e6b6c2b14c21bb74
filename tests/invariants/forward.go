package invariants

import (
	"time"

	"github.com/reknit/reknit/events"
)

// forward finds a node that goes back to an older plan, trains one nobody committed, or one in which it has no place.
var forward = Invariant{"a node activates committed plans in order", func(log *Log) []Violation {
	plans, committed := map[uint64]*events.Plan{}, map[uint64]uint64{} // by generation: the plan, and where its commitment stands
	for _, entry := range log.Plans {
		if plan, ok := entry.Payload.(*events.Plan); ok {
			plans[plan.Generation] = plan
		}
	}
	for entry, commitment := range said[*events.Commitment](log, events.Committed) {
		committed[commitment.Generation] = entry.Sequence
	}
	var violations []Violation
	newest, when := map[string]uint64{}, map[string]time.Time{}
	for entry, activation := range said[*events.Activation](log, events.PlanActivated) {
		node, late := activation.Node, entry.Time.Before(when[activation.Node]) // what a node says may be stored in any order
		if activation.Generation <= newest[node] && !late {
			violations = append(violations, entry.violation("%s activates generation %d after %d", node, activation.Generation,
				newest[node]))
		}
		if !late {
			newest[node], when[node] = activation.Generation, entry.Time
		}
		if at, known := committed[activation.Generation]; !known || at > entry.Sequence {
			violations = append(violations, entry.violation("%s activates generation %d, which is not committed", node,
				activation.Generation))
			continue
		}
		if plan := plans[activation.Generation]; plan != nil { // who listens on core NATS may hear it before it is stored
			violations = append(violations, activated(entry, activation, plan)...)
		}
	}
	return violations
}}

func activated(entry *Entry, activation *events.Activation, plan *events.Plan) []Violation {
	if _, placed := plan.Holds(activation.Node); !placed {
		return []Violation{entry.violation("%s has no place in generation %d", activation.Node, activation.Generation)}
	}
	if activation.Step <= plan.ResumeStep {
		return []Violation{entry.violation("%s activates generation %d at step %d, it begins behind step %d", activation.Node,
			activation.Generation, activation.Step, plan.ResumeStep)}
	}
	return nil
}
