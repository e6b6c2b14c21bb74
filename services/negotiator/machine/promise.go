package machine

import (
	"fmt"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

// prepare asks all who train for the step at which they can stop.
func (m *Machine) prepare(cause events.Event) []events.Event {
	under := m.state.Negotiation
	under.enter(protocol.Promising)
	return []events.Event{m.say(cause, events.Prepared, &events.Preparation{
		Negotiation: under.ID, Generation: under.Opening.Generation,
	})}
}

// promised takes a node's word where it binds: who does not train cannot pass a step.
func (m *Machine) promised(cause events.Event, promise events.Promise) []events.Event {
	under := m.under(promise.Negotiation, protocol.Promising)
	if under == nil || !m.trains(promise.Node) {
		return nil
	}
	under.Promises[promise.Node] = promise.StopStep
	delete(m.state.Busy, busyKey(protocol.Promising, promise.Node))
	m.answered(promise.Node)
	if m.awaitsAnswers() {
		return nil
	}
	stop, impossible := protocol.StopStep(under.Promises)
	if len(impossible) > 0 {
		return m.giveUp(cause, impossible,
			fmt.Sprintf("promised to stop at a step that nobody near can reach: %v", under.Promises[impossible[0]]), false)
	}
	under.StopStep = stop
	if under.Opening.Stop {
		return m.lastSnapshot(cause)
	}
	return m.transfer(cause)
}
