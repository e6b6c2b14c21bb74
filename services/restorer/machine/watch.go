package machine

import (
	"fmt"
	"maps"
	"slices"

	"github.com/reknit/reknit/events"
)

// watch is a transfer under way: who must receive what of whom, and what its givers say it is.
type watch struct {
	Negotiation string                   `json:"negotiation"`
	StopStep    uint64                   `json:"stopStep"`        // at which units are given
	Givers      map[int][]string         `json:"givers"`          // by unit
	Expected    map[string][]int         `json:"expected"`        // by receiver: units it has not verified yet
	Offers      map[int]map[string]offer `json:"offers"`          // by unit and giver
	Alike       bool                     `json:"alike,omitempty"` // givers' bytes may differ: a unit has one giver
	Bytes       int64                    `json:"bytes"`
	Seconds     float64                  `json:"seconds"`
}

// offer is what a giver says that a unit is.
type offer struct {
	Digest string `json:"digest"`
	Bytes  int64  `json:"bytes"`
}

// blame says why a transfer cannot end well, and whose fault that is; or, where that is not known, who it may be.
type blame struct {
	node, reason string
	doubted      []string
	differs      []events.Range // units of which the bytes differ
}

func blaming(node, format string, values ...any) *blame {
	return &blame{node: node, reason: fmt.Sprintf(format, values...)}
}

// doubting blames a giver, from which others take as little as they can next.
func doubting(giver, format string, values ...any) *blame {
	return &blame{node: giver, reason: fmt.Sprintf(format, values...), doubted: []string{giver}}
}

func (m *Machine) scheduled(_ events.Event, schedule events.Schedule) []events.Event {
	w := &watch{
		Negotiation: schedule.Negotiation, StopStep: schedule.StopStep,
		Alike:  schedule.Plan.Replicas == events.AlikeReplicas,
		Givers: map[int][]string{}, Expected: map[string][]int{}, Offers: map[int]map[string]offer{},
	}
	for _, transfer := range schedule.Plan.Migration.Transfers {
		w.Expected[transfer.To] = append(w.Expected[transfer.To], transfer.Unit)
		for _, source := range transfer.Sources {
			if !slices.Contains(w.Givers[transfer.Unit], source.Node) {
				w.Givers[transfer.Unit] = append(w.Givers[transfer.Unit], source.Node)
			}
		}
	}
	m.state.Watch = w
	return nil
}

// offered compares what the givers of a unit say. An offer that nobody asked for has no effect.
func (m *Machine) offered(cause events.Event, offer events.Offer) []events.Event {
	if !m.watches(offer.Negotiation) || !slices.Contains(m.state.Watch.Givers[offer.Unit], offer.Node) {
		return nil
	}
	if blame := m.state.Watch.note(offer); blame != nil {
		return m.fail(cause, *blame)
	}
	return nil
}

// note takes an offer. Once all givers of a unit have spoken they must agree: at one step their states are equal to the
// bit.
func (w *watch) note(said events.Offer) *blame {
	if said.Step != w.StopStep {
		return doubting(said.Node, "unit %d: expected an offer of step %d, got %d", said.Unit, w.StopStep, said.Step)
	}
	offers, told := w.Offers[said.Unit], offer{said.Digest, said.Bytes}
	if offers == nil {
		offers = map[string]offer{}
		w.Offers[said.Unit] = offers
	}
	if before, again := offers[said.Node]; again && before != told {
		return doubting(said.Node, "unit %d: expected %s as it offered before, got %s",
			said.Unit, before.Digest, said.Digest)
	}
	offers[said.Node] = told
	if w.Alike || len(offers) < len(w.Givers[said.Unit]) {
		return nil
	}
	return w.disagreement(said)
}

// disagreement blames a giver whose offer is not that of more than half of a unit's givers. Nobody can tell who is right if no offer has as
// many, and all givers are doubted: each receiver takes the unit from one of them alone next, and then sees whether that one gives what it
// offers.
func (w *watch) disagreement(last events.Offer) *blame {
	offers, count, unit := w.Offers[last.Unit], map[offer]int{}, []events.Range{{First: last.Unit, End: last.Unit + 1}}
	for _, told := range offers {
		count[told]++
	}
	if len(count) == 1 {
		return nil
	}
	major, found := offer{}, false
	for told, givers := range count {
		if 2*givers > len(offers) {
			major, found = told, true
		}
	}
	if !found {
		all := slices.Sorted(maps.Keys(offers))
		return &blame{"", fmt.Sprintf("unit %d at step %d: its givers %v differ, and no digest has more than half of them",
			last.Unit, last.Step, all), all, unit}
	}
	for _, node := range slices.Sorted(maps.Keys(offers)) {
		if told := offers[node]; told != major {
			return &blame{node, fmt.Sprintf("unit %d at step %d: expected %s as most givers offer, got %s",
				last.Unit, last.Step, major.Digest, told.Digest), []string{node}, unit}
		}
	}
	return nil
}

func (m *Machine) received(cause events.Event, receipt events.Receipt) []events.Event {
	if !m.watches(receipt.Negotiation) || m.state.Watch.Expected[receipt.Node] == nil {
		return nil
	}
	w := m.state.Watch
	bytes, blame := w.verify(receipt)
	if blame != nil {
		return m.fail(cause, *blame)
	}
	m.learn(w, receipt)
	delete(w.Expected, receipt.Node)
	w.Bytes += bytes
	w.Seconds = max(w.Seconds, receipt.Seconds)
	if len(w.Expected) > 0 {
		return nil
	}
	m.state.Watch = nil
	done := &events.Completion{Negotiation: receipt.Negotiation, Bytes: w.Bytes, Seconds: w.Seconds}
	return []events.Event{m.speaker.Say(cause, events.RestorationDone, receipt.Negotiation, done)}
}

// verify returns the bytes that a receiver received, or blames it: the receipt must name exactly the units that it is
// to receive, at the step and with the digest that their givers offered.
func (w *watch) verify(receipt events.Receipt) (bytes int64, _ *blame) {
	wrong := func(format string, values ...any) *blame { return blaming(receipt.Node, "receipt: "+format, values...) }
	missing := slices.Clone(w.Expected[receipt.Node])
	for _, unit := range receipt.Units {
		at := slices.Index(missing, unit.Unit)
		if at < 0 {
			return 0, wrong("unit %d: expected each of %v once", unit.Unit, w.Expected[receipt.Node])
		}
		missing = slices.Delete(missing, at, at+1)
		if unit.Step != w.StopStep {
			return 0, wrong("unit %d: expected step %d, got %d", unit.Unit, w.StopStep, unit.Step)
		}
		if !w.offered(unit) {
			return 0, wrong("unit %d: expected the digest of an offer, got %s", unit.Unit, unit.Digest)
		}
		bytes += unit.Bytes
	}
	if len(missing) > 0 {
		return 0, wrong("expected units %v, too", missing)
	}
	return bytes, nil
}

func (w *watch) offered(unit events.ReceivedUnit) bool {
	for _, told := range w.Offers[unit.Unit] {
		if told.Digest == unit.Digest {
			return true
		}
	}
	return false
}

// overdue says who holds up a transfer that did not end in time.
func (m *Machine) overdue(cause events.Event, overdue events.Overdue) []events.Event {
	if !m.watches(overdue.Negotiation) {
		return nil
	}
	if blame := m.state.Watch.behind(); blame != nil {
		return m.fail(cause, *blame)
	}
	return nil
}

// behind blames the first giver that has not offered what a receiver waits for, or else the first receiver. It names
// one: the others may only wait for it.
func (w *watch) behind() *blame {
	receivers := slices.Sorted(maps.Keys(w.Expected))
	for _, receiver := range receivers {
		for _, unit := range w.Expected[receiver] {
			for _, giver := range w.Givers[unit] {
				if _, offered := w.Offers[unit][giver]; !offered {
					return doubting(giver, "unit %d: not offered in time, and %s waits for it", unit, receiver)
				}
			}
		}
	}
	for _, receiver := range receivers {
		return blaming(receiver, "units %v: offered, and not received in time", w.Expected[receiver])
	}
	return nil
}

// fail says that the transfer cannot end well. The negotiator gives up a node that is blamed again and again.
func (m *Machine) fail(cause events.Event, blame blame) []events.Event {
	negotiation := m.state.Watch.Negotiation
	m.state.Watch = nil
	return []events.Event{m.speaker.Say(cause, events.RestorationFailed, negotiation,
		&events.Failure{Negotiation: negotiation, Node: blame.node, Givers: blame.doubted, Units: blame.differs, Reason: blame.reason})}
}

func (m *Machine) watches(negotiation string) bool {
	return m.state.Watch != nil && m.state.Watch.Negotiation == negotiation
}

func (m *Machine) committed(_ events.Event, commitment events.Commitment) []events.Event {
	if planned := m.state.Planned; planned != nil && planned.Negotiation == commitment.Negotiation {
		planned.Compare.follow(m.state.Compare)
		m.state.Planned, m.state.Compare = nil, planned.Compare
		if planned.Keeping != nil { // a build of before planned it
			planned.Keeping.Plan = commitment.PlanDigest
			m.state.Keeping = append([]*keeping{planned.Keeping}, m.state.Keeping...)
			m.state.Keeping = m.state.Keeping[:min(mostKeeping, len(m.state.Keeping))]
		}
	}
	return m.forget(commitment.Negotiation)
}

func (m *Machine) aborted(_ events.Event, abort events.Abort) []events.Event {
	return m.forget(abort.Negotiation)
}

func (m *Machine) forget(negotiation string) []events.Event {
	if m.watches(negotiation) {
		m.state.Watch = nil
	}
	return nil
}
