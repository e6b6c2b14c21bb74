package machine

import (
	"fmt"
	"slices"

	"github.com/reknit/reknit/events"
)

// exchange is what a negotiation asks this node to give and to take. Its maps hold at most what the plan's
// transfers name.
type exchange struct {
	exports map[Task]int          // by task: the unit
	fetches map[Task]events.Offer // by task: the first of the offers
	begun   map[int]bool          // units that are being fetched, or are here
	receipt events.Receipt
}

// imported is a unit that the trainer's state keeps aside: another attempt does not fetch it again.
type imported struct {
	step   uint64
	digest string
}

// scheduled fixes the step at which all stop, and where units move.
func (m *Machine) scheduled(event events.Event, schedule events.Schedule) {
	if m.under(schedule.Negotiation) && m.negotiation.schedule == nil {
		m.negotiation.schedule, m.negotiation.phase = &heard[events.Schedule]{event, schedule}, scheduled
	}
}

// mayMove reports whether units are to move and the trainer stands where all do.
func (m *Machine) mayMove() bool {
	if m.negotiation == nil || m.negotiation.phase != scheduled {
		return false
	}
	return m.awaited > 0 || m.done == m.negotiation.schedule.payload.StopStep || m.idle()
}

// move gives the units that others need of this node, and takes those it needs as they are offered.
func (m *Machine) move() {
	under := m.negotiation
	schedule := under.schedule.payload
	under.phase = moving
	m.open(schedule.Plan)
	for _, unit := range unitsFrom(m.settings.Node, schedule.Plan.Migration.Transfers) {
		task := m.task()
		under.exchange.exports[task] = unit
		m.do(Export{task, unit, schedule.StopStep, schedule.Plan.Snapshot})
	}
	m.take()
}

// open begins the exchange.
func (m *Machine) open(plan events.Plan) {
	under := m.negotiation
	under.exchange = exchange{
		exports: map[Task]int{}, fetches: map[Task]events.Offer{}, begun: map[int]bool{},
	}
	m.do(Open{under.to(plan)})
}

// to returns what a plan moves in the negotiation.
func (n *negotiation) to(plan events.Plan) Exchange {
	n.moves = true
	opening := n.opening.payload
	return Exchange{Negotiation: opening.Negotiation, Plan: plan, Members: opening.Members}
}

// unitsFrom returns the units that a node is a source of, in order of their first transfer.
func unitsFrom(node string, transfers []events.Transfer) []int {
	var units []int
	for _, transfer := range transfers {
		if gives(node, transfer) && !slices.Contains(units, transfer.Unit) {
			units = append(units, transfer.Unit)
		}
	}
	return units
}

// exported tells a unit's manifest.
func (m *Machine) exported(result Exported) {
	if m.negotiation == nil {
		return
	}
	unit, current := m.negotiation.exchange.exports[result.Task]
	if !current {
		return
	}
	schedule := m.negotiation.schedule
	m.say(schedule.event, events.ShardOffered, fmt.Sprintf("unit-%d", unit), &events.Offer{
		Negotiation: schedule.payload.Negotiation, Node: m.settings.Node, Unit: unit, Step: schedule.payload.StopStep,
		Digest: result.Digest, Bytes: result.Bytes, Parts: result.Parts,
	})
}

// offered notes a manifest of a unit that this node takes.
func (m *Machine) offered(_ events.Event, offer events.Offer) {
	if !m.under(offer.Negotiation) || m.negotiation.schedule == nil {
		return
	}
	offers, schedule := m.negotiation.offers, m.negotiation.schedule.payload
	for _, transfer := range m.toTake() {
		expected := transfer.Unit == offer.Unit && offer.Step == schedule.StopStep && gives(offer.Node, transfer)
		if expected && from(offer.Node, offers[offer.Unit]) == nil {
			offers[offer.Unit] = append(offers[offer.Unit], offer)
		}
	}
	m.take()
}

// toTake returns the transfers to this node.
func (m *Machine) toTake() []events.Transfer {
	var list []events.Transfer
	for _, transfer := range m.negotiation.schedule.payload.Plan.Migration.Transfers {
		if transfer.To == m.settings.Node {
			list = append(list, transfer)
		}
	}
	return list
}

// take begins to fetch each unit that all its sources have offered, and says so when the last one is here.
func (m *Machine) take() {
	if m.negotiation.phase != moving {
		return
	}
	wanted := m.toTake()
	for _, transfer := range wanted {
		if offers := m.complete(transfer); offers != nil && !m.negotiation.exchange.begun[transfer.Unit] {
			m.negotiation.exchange.begun[transfer.Unit] = true
			m.takeUnit(transfer, offers)
		}
	}
	receipt := &m.negotiation.exchange.receipt
	if m.negotiation.phase != moving || len(receipt.Units) < len(wanted) {
		return
	}
	m.negotiation.phase = moved
	if len(wanted) > 0 {
		schedule := m.negotiation.schedule
		receipt.Negotiation, receipt.Node = schedule.payload.Negotiation, m.settings.Node
		m.say(schedule.event, events.ShardReceived, m.settings.Node, receipt)
	}
}

// complete returns the offers of all sources of a transfer, in the sources' order; nil while one is missing.
func (m *Machine) complete(transfer events.Transfer) []events.Offer {
	var offers []events.Offer
	for _, source := range transfer.Sources {
		offer := from(source.Node, m.negotiation.offers[transfer.Unit])
		if offer == nil {
			return nil
		}
		offers = append(offers, *offer)
	}
	return offers
}

// takeUnit fetches a unit, unless an attempt before has brought it already. One on which its holders do not agree
// is not fetched: the restorer says which of them is wrong.
func (m *Machine) takeUnit(transfer events.Transfer, offers []events.Offer) {
	first := offers[0]
	differs := func(offer events.Offer) bool { return offer.Digest != first.Digest || offer.Bytes != first.Bytes }
	if slices.ContainsFunc(offers, differs) {
		return
	}
	if first.Bytes > m.settings.MemoryBytes {
		m.breakOff(fmt.Sprintf("unit %d: %s: bytes: expected at most the node's memory, %d, got %d",
			transfer.Unit, first.Node, m.settings.MemoryBytes, first.Bytes), false, first.Node)
		return
	}
	if m.imported[transfer.Unit] == (imported{first.Step, first.Digest}) {
		m.arrived(first)
		return
	}
	task := m.task()
	m.negotiation.exchange.fetches[task] = first
	m.do(Fetch{task, transfer, offers})
}

// fetched notes a unit that was verified and imported.
func (m *Machine) fetched(result Fetched) {
	if m.negotiation == nil {
		return
	}
	offer, current := m.negotiation.exchange.fetches[result.Task]
	if !current {
		return
	}
	delete(m.negotiation.exchange.fetches, result.Task)
	receipt := &m.negotiation.exchange.receipt
	receipt.Seconds, receipt.Sources = max(receipt.Seconds, result.Seconds), result.Sources
	m.imported[offer.Unit] = imported{offer.Step, offer.Digest}
	m.vouchFor(events.Range{First: offer.Unit, End: offer.Unit + 1})
	m.arrived(offer)
	m.take()
}

// arrived puts a unit on the receipt.
func (m *Machine) arrived(offer events.Offer) {
	receipt := &m.negotiation.exchange.receipt
	receipt.Units = append(receipt.Units,
		events.ReceivedUnit{Unit: offer.Unit, Step: offer.Step, Digest: offer.Digest, Bytes: offer.Bytes})
}

// failed hears that a task cannot be done. One of the exchange ends this node's part of the negotiation; without
// the plan's units the session cannot go on.
func (m *Machine) failed(result Failed) {
	if asked, current := m.answered(result.Task); current {
		if asked.negotiation == "" {
			m.end(End{Reason: fmt.Sprintf("plan %d: %s", m.pending[0].plan.Generation, result.Reason)})
		} else {
			m.end(End{Reason: result.Reason})
		}
		return
	}
	if m.negotiation == nil {
		return
	}
	if unit, gives := m.negotiation.exchange.exports[result.Task]; gives {
		m.breakOff(fmt.Sprintf("unit %d: %s", unit, result.Reason), result.Hub)
	}
	if offer, takes := m.negotiation.exchange.fetches[result.Task]; takes {
		m.breakOff(fmt.Sprintf("unit %d: %s", offer.Unit, result.Reason), result.Hub, result.Givers...)
	}
}

// breakOff says, once, why this node cannot do its part, and that it is to blame unless the hub is; or givers, by whose word alone it is.
// The node goes on giving until the negotiation ends.
func (m *Machine) breakOff(reason string, hub bool, givers ...string) {
	if m.negotiation.phase == broken {
		return
	}
	m.negotiation.phase = broken
	schedule := m.negotiation.schedule
	failure := &events.Failure{Negotiation: schedule.payload.Negotiation, Reason: reason}
	if !hub {
		failure.Node, failure.Givers = m.settings.Node, givers
	}
	m.say(schedule.event, events.RestorationFailed, m.settings.Node, failure)
}

func gives(node string, transfer events.Transfer) bool {
	return slices.ContainsFunc(transfer.Sources, func(source events.Source) bool { return source.Node == node })
}

// from returns the offer of a node; nil where there is none.
func from(node string, offers []events.Offer) *events.Offer {
	if i := slices.IndexFunc(offers, func(offer events.Offer) bool { return offer.Node == node }); i >= 0 {
		return &offers[i]
	}
	return nil
}
