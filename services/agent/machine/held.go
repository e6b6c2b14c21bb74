package machine

import (
	"slices"

	"github.com/reknit/reknit/events"
)

// held hears why no plan is possible until the world changes. It does not repeat a reason that it knows: a cluster that
// is held is tried again and again. Another process has the name of a node that is waited for though it has asked for a place.
func (m *Machine) held(event events.Event, hold events.Hold) {
	if m.membership == joining && slices.Contains(hold.Awaits, m.settings.Node) {
		m.do(Look{})
	}
	if m.waits.Reason == "" {
		m.waits.Since = event.Time
	}
	if m.waits.Reason != hold.Reason {
		m.waits.Reason, m.waits.Awaits = hold.Reason, hold.Awaits
		m.do(m.waits)
	}
}

// noticeThatTrainingGoesOn ends the wait of a cluster that was held: a step begins, a plan is taken up, which may give
// this node nothing to train, or the cluster went on without it. While a negotiation is under way a step proves nothing:
// it may be the last before the one at which all stop. A plan before the one that is awaited, which this node takes up late, proves
// nothing either: its step ended another node, say, and is held.
func (m *Machine) noticeThatTrainingGoesOn() {
	if m.waits.Reason != "" && m.negotiation == nil && m.awaited == 0 {
		m.do(Waits{Since: m.waits.Since})
		m.waits = Waits{}
	}
}
