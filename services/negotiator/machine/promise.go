package machine

import (
	"fmt"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

// promising is where all can stop.
type promising struct {
	Promises map[string]uint64 `json:"promises"`
	StopStep uint64            `json:"stopStep"`
}

// prepare asks all who train for the step at which they can stop.
func (m *Machine) prepare() {
	under := m.state.Negotiation
	under.enter(protocol.Promising)
	m.say(events.Prepared, under.ID, &events.Preparation{
		Negotiation: under.ID, Generation: under.Opening.Generation,
	})
}

// promised takes a node's word where it binds: who does not train cannot pass a step.
func (m *Machine) promised(promise events.Promise) {
	under := m.under(promise.Negotiation, protocol.Promising)
	if under == nil || !m.trains(promise.Node) {
		return
	}
	under.Promises[promise.Node] = promise.StopStep
	delete(m.state.Busy, busyKey(protocol.Promising, promise.Node))
	m.answered(promise.Node)
}

// allPromised reports whether nobody's promise is waited for any more.
func (m *Machine) allPromised() bool { return len(m.state.Negotiation.Promises) > 0 && m.allAnswered() }

// agrees sets the step at which all stop, and reports whether they can. A node is given up that promised a step which nobody near can
// reach.
func (m *Machine) agrees() bool {
	under := m.state.Negotiation
	stop, impossible := protocol.StopStep(under.Promises)
	if len(impossible) > 0 {
		m.giveUp(impossible,
			fmt.Sprintf("promised to stop at a step that nobody near can reach: %v", under.Promises[impossible[0]]), false)
		return false
	}
	under.StopStep = stop
	return true
}
