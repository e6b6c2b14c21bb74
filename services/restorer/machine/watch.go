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
	m.watch = &watch{Negotiation: schedule.Negotiation, Expected: map[string][]int{}, Offered: map[int]string{}}
	for _, transfer := range schedule.Plan.Migration.Transfers {
		m.watch.Expected[transfer.To] = append(m.watch.Expected[transfer.To], transfer.Layer)
	}
	return nil
}

// offered compares what the holders of a layer say: at one step their states must be equal to the bit.
func (m *Machine) offered(cause events.Event, offer events.Offer) []events.Event {
	if !m.watches(offer.Negotiation) {
		return nil
	}
	if first, known := m.watch.Offered[offer.Layer]; known && first != offer.Digest {
		return m.fail(cause, offer.Node, fmt.Sprintf("layer %d at step %d: expected %s as offered before, got %s", offer.Layer, offer.Step, first, offer.Digest))
	}
	m.watch.Offered[offer.Layer] = offer.Digest
	return nil
}

func (m *Machine) received(cause events.Event, receipt events.Receipt) []events.Event {
	if !m.watches(receipt.Negotiation) || m.watch.Expected[receipt.Node] == nil {
		return nil
	}
	verified := map[int]bool{}
	for _, layer := range receipt.Layers {
		if layer.Digest != m.watch.Offered[layer.Layer] {
			return m.fail(cause, receipt.Node, fmt.Sprintf("layer %d: expected %s as offered, got %s", layer.Layer, m.watch.Offered[layer.Layer], layer.Digest))
		}
		verified[layer.Layer] = true
		m.watch.Bytes += layer.Bytes
	}
	for _, layer := range m.watch.Expected[receipt.Node] {
		if !verified[layer] {
			return m.fail(cause, receipt.Node, fmt.Sprintf("layer %d is missing in the receipt", layer))
		}
	}
	delete(m.watch.Expected, receipt.Node)
	m.watch.Seconds = max(m.watch.Seconds, receipt.Seconds)
	if len(m.watch.Expected) > 0 {
		return nil
	}
	done := &events.Completion{Negotiation: receipt.Negotiation, Bytes: m.watch.Bytes, Seconds: m.watch.Seconds}
	m.watch = nil
	return []events.Event{m.speaker.Say(cause, events.RestorationDone, receipt.Negotiation, done)}
}

func (m *Machine) fail(cause events.Event, node, reason string) []events.Event {
	negotiation := m.watch.Negotiation
	m.watch = nil
	return []events.Event{m.speaker.Say(cause, events.RestorationFailed, negotiation,
		&events.Failure{Negotiation: negotiation, Node: node, Reason: reason})}
}

func (m *Machine) watches(negotiation string) bool {
	return m.watch != nil && m.watch.Negotiation == negotiation
}

func (m *Machine) committed(_ events.Event, commitment events.Commitment) []events.Event {
	return m.forget(commitment.Negotiation)
}

func (m *Machine) aborted(_ events.Event, abortion events.Abortion) []events.Event {
	return m.forget(abortion.Negotiation)
}

func (m *Machine) forget(negotiation string) []events.Event {
	if m.watches(negotiation) {
		m.watch = nil
	}
	return nil
}
