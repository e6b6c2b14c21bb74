package machine

import (
	"fmt"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

// waiting is what the machine has been waiting for, and since when by its own ticks.
type waiting struct {
	events.Overdue
	since time.Time
	told  bool
}

// Tick says when somebody was waited for too long. It decides nothing: an answer that is in the log already, though not
// heard yet, must count. Services are waited for without end, for one that was killed resumes from the log.
func (m *Machine) Tick(now time.Time) []events.Event {
	wanted, limit := m.wanted()
	if m.waits.Overdue != wanted {
		m.waits = waiting{Overdue: wanted, since: now}
	}
	if limit == 0 || m.waits.told || now.Sub(m.waits.since) < limit {
		return nil
	}
	m.waits.told = true
	reason := fmt.Sprintf("%s-%s-%d-%d", wanted.Negotiation, wanted.Phase, wanted.Round, m.state.generation())
	overdue := m.speaker.First(now, reason, events.NegotiationOverdue, wanted.Negotiation, &wanted)
	if under := m.state.Negotiation; under != nil {
		overdue.Traceparent = under.Trace
	}
	return []events.Event{overdue}
}

// wanted returns what the machine waits for, and for how long; zero is for ever.
func (m *Machine) wanted() (events.Overdue, time.Duration) {
	under := m.state.Negotiation
	if under == nil {
		limit := m.settings.HoldTime
		switch {
		case m.state.Held == 0:
			limit = 0
		case m.state.Patience > 0:
			limit = time.Duration(m.state.Patience * float64(time.Second))
		}
		return events.Overdue{Negotiation: "none", Phase: "held", Round: m.state.Holds}, limit
	}
	wanted := events.Overdue{Negotiation: under.ID, Phase: string(under.Phase), Round: under.Overdue}
	switch wait := protocol.Waits[under.Phase]; {
	case wait.Members:
		return wanted, m.settings.AnswerTimeout
	case wait.Shards:
		return wanted, m.settings.TransferTime
	}
	return wanted, 0
}

// overdue decides about whoever still has not answered.
func (m *Machine) overdue(cause events.Event, overdue events.Overdue) []events.Event {
	if now, _ := m.wanted(); now != overdue {
		return nil // it was answered before this
	}
	under := m.state.Negotiation
	switch {
	case under == nil:
		return m.openNext(cause)
	case under.Phase == protocol.PreCopying:
		return m.prepare(cause)
	case protocol.Waits[under.Phase].Shards:
		return m.retry(cause, "the transfer did not end in time")
	}
	silent := m.silent()
	if len(silent) == len(m.expected()) {
		under.Overdue++ // all at once: the way to them is at fault, or this service; it waits another round
		return nil
	}
	return m.giveUp(cause, silent, "no answer in time: given up")
}

// expected returns the members whose answer the phase needs. Only who trains can pass a step, and has to promise.
func (m *Machine) expected() []string {
	var expected []string
	for _, member := range m.state.Negotiation.Opening.Members {
		trains := false
		if m.state.Plan != nil {
			_, trains = m.state.Plan.Holds(member.Node)
		}
		if m.state.Negotiation.Phase == protocol.Consenting || trains {
			expected = append(expected, member.Node)
		}
	}
	return expected
}

// silent returns the members that the phase still waits for.
func (m *Machine) silent() []string {
	under := m.state.Negotiation
	var silent []string
	for _, node := range m.expected() {
		_, consented := under.Consents[node]
		_, promised := under.Promises[node]
		if under.Phase == protocol.Consenting && !consented || under.Phase == protocol.Promising && !promised {
			silent = append(silent, node)
		}
	}
	return silent
}

// giveUp treats members as failed: alive or not, they do not take part. One that lives hears so, and asks to join again.
func (m *Machine) giveUp(cause events.Event, members []string, reason string) []events.Event {
	var said []events.Event
	for _, node := range members {
		said = append(said, m.endMembership(cause, node, reason)...)
		m.forget(cause, node)
	}
	return append(said, m.negotiate(cause, protocol.Urgent)...)
}
