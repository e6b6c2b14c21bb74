package machine

import (
	"encoding/json"
	"slices"

	"github.com/reknit/reknit/events"
)

// Forgotten tells that the log is another one, which may know nothing of this node and its plan: it asks for a place again, and tells
// what it trained.
func (m *Machine) Forgotten(reason string) []Action {
	if m.membership == over {
		return nil
	}
	m.giveUp(reason)
	return m.act()
}

// past is what the node holds of a plan before; nil: nothing.
func (m *Machine) past() *events.Trained {
	if m.claimable == 0 {
		return nil
	}
	past := &events.Trained{Generation: m.claimable, Step: m.done}
	if m.trained != nil {
		past.Plan = m.trained.digest
	}
	return past
}

// before is the plan under which an earlier session of this node trained the state; nil where it is not known.
func before(settings Settings) *committed {
	plan := settings.Past
	if plan == nil || plan.Generation != settings.Trained {
		return nil
	}
	data, err := json.Marshal(plan)
	if err != nil {
		return nil
	}
	return &committed{plan: plan, digest: events.Digest(data)}
}

// recall consents at once, with the plan that the log has lost where this node is asked for it. It tells what it holds in the
// negotiation that follows.
func (m *Machine) recall(opening events.Opening) {
	consent := events.Consent{Accepted: true}
	if slices.Contains(opening.Recalls, m.settings.Node) && m.trained != nil {
		consent.Plan = m.trained.plan
	}
	m.consent(consent)
}
