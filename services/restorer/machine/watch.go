package machine

import (
	"fmt"

	"github.com/reknit/reknit/events"
)

// watch is a transfer under way: who must receive what, and what its sources say it is.
type watch struct {
	Negotiation string           `json:"negotiation"`
	Expected    map[string][]int `json:"expected"` // by receiver: layers it has not verified yet
	Offered     map[int]string   `json:"offered"`  // by layer: its digest
	Bytes       int64            `json:"bytes"`
	Seconds     float64          `json:"seconds"`
}

func (m *Machine) scheduled(_ events.Event, schedule events.Schedule) []events.Event {
	m.state.Watch = &watch{Negotiation: schedule.Negotiation, Expected: map[string][]int{}, Offered: map[int]string{}}
	for _, transfer := range schedule.Plan.Migration.Transfers {
		m.state.Watch.Expected[transfer.To] = append(m.state.Watch.Expected[transfer.To], transfer.Unit)
	}
	return nil
}

// offered compares what the holders of a layer say: at one step their states must be equal to the bit.
func (m *Machine) offered(cause events.Event, offer events.Offer) []events.Event {
	if !m.watches(offer.Negotiation) {
		return nil
	}
	if first, known := m.state.Watch.Offered[offer.Unit]; known && first != offer.Digest {
		return m.fail(cause, offer.Node, fmt.Sprintf("layer %d at step %d: expected %s as offered before, got %s", offer.Unit, offer.Step, first, offer.Digest))
	}
	m.state.Watch.Offered[offer.Unit] = offer.Digest
	return nil
}

func (m *Machine) received(cause events.Event, receipt events.Receipt) []events.Event {
	if !m.watches(receipt.Negotiation) || m.state.Watch.Expected[receipt.Node] == nil {
		return nil
	}
	verified := map[int]bool{}
	for _, layer := range receipt.Units {
		if layer.Digest != m.state.Watch.Offered[layer.Unit] {
			return m.fail(cause, receipt.Node, fmt.Sprintf("layer %d: expected %s as offered, got %s", layer.Unit, m.state.Watch.Offered[layer.Unit], layer.Digest))
		}
		verified[layer.Unit] = true
		m.state.Watch.Bytes += layer.Bytes
	}
	for _, layer := range m.state.Watch.Expected[receipt.Node] {
		if !verified[layer] {
			return m.fail(cause, receipt.Node, fmt.Sprintf("layer %d is missing in the receipt", layer))
		}
	}
	delete(m.state.Watch.Expected, receipt.Node)
	m.state.Watch.Seconds = max(m.state.Watch.Seconds, receipt.Seconds)
	if len(m.state.Watch.Expected) > 0 {
		return nil
	}
	done := &events.Completion{Negotiation: receipt.Negotiation, Bytes: m.state.Watch.Bytes, Seconds: m.state.Watch.Seconds}
	m.state.Watch = nil
	return []events.Event{m.speaker.Say(cause, events.RestorationDone, receipt.Negotiation, done)}
}

func (m *Machine) fail(cause events.Event, node, reason string) []events.Event {
	negotiation := m.state.Watch.Negotiation
	m.state.Watch = nil
	return []events.Event{m.speaker.Say(cause, events.RestorationFailed, negotiation,
		&events.Failure{Negotiation: negotiation, Node: node, Reason: reason})}
}

func (m *Machine) watches(negotiation string) bool {
	return m.state.Watch != nil && m.state.Watch.Negotiation == negotiation
}

func (m *Machine) committed(_ events.Event, commitment events.Commitment) []events.Event {
	if planned := m.state.Planned; planned != nil && planned.Negotiation == commitment.Negotiation {
		m.state.Planned, m.state.Compare = nil, planned.Compare
	}
	return m.forget(commitment.Negotiation)
}

func (m *Machine) aborted(_ events.Event, abortion events.Abort) []events.Event {
	return m.forget(abortion.Negotiation)
}

func (m *Machine) forget(negotiation string) []events.Event {
	if m.watches(negotiation) {
		m.state.Watch = nil
	}
	return nil
}
