package machine

import (
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

// Tick gives up members that do not answer and transfers that do not end. Services are waited for without end.
func (m *Machine) Tick(now time.Time) []events.Event {
	under := m.state.Negotiation
	if under == nil || now.Before(under.Deadline) {
		return nil
	}
	cause := events.Event{ID: under.ID + "-" + string(under.Phase) + "-deadline", Traceparent: under.Trace, Logged: now}
	wait := protocol.Waits[under.Phase]
	if wait.Shards {
		return m.retry(cause, "the transfer did not end in time")
	}
	if wait.Members {
		return m.giveUp(cause, m.silent())
	}
	return nil
}

// silent returns the members that the phase still waits for. Only who trains can pass a step, and has to promise.
func (m *Machine) silent() []string {
	under := m.state.Negotiation
	var silent []string
	for _, member := range under.Opening.Members {
		_, consented := under.Consents[member.Node]
		_, promised := under.Promises[member.Node]
		trains := false
		if m.state.Plan != nil {
			_, trains = m.state.Plan.Holds(member.Node)
		}
		if under.Phase == protocol.Consenting && !consented || under.Phase == protocol.Promising && trains && !promised {
			silent = append(silent, member.Node)
		}
	}
	return silent
}

// giveUp treats silent members as failed: alive or not, they do not take part. One that lives finds itself missing
// in the next plan and asks to join again.
func (m *Machine) giveUp(cause events.Event, silent []string) []events.Event {
	var said []events.Event
	for _, node := range silent {
		m.forget(cause, node)
		said = append(said, m.refuse(cause, node, "no answer in time: given up")...)
	}
	return append(said, m.negotiate(cause, true)...)
}
