package machine

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/merit"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

// busy is a member that needs so many seconds to answer, zero where it does not know, since it first asked for time.
type busy struct {
	Since   time.Time `json:"since"`
	Seconds float64   `json:"seconds"`
}

func busyKey(phase protocol.Phase, node string) string { return string(phase) + " " + node }

// delayed hears that a member will answer later: its trainer is busy, which may take minutes. It is not silent. Its time
// goes on through negotiations that follow one another: it would have all of it in each.
func (m *Machine) delayed(delay events.Delay) {
	under := m.under(delay.Negotiation, protocol.Consenting, protocol.Promising)
	if under != nil && under.takesPart(delay.Node, delay.Incarnation) && slices.Contains(m.silent(), delay.Node) {
		asked := m.state.Busy[busyKey(under.Phase, delay.Node)]
		if asked.Seconds = delay.Seconds; asked.Since.IsZero() {
			asked.Since = m.cause.Logged
		}
		m.state.Busy[busyKey(under.Phase, delay.Node)] = asked
	}
}

// excuses returns a function that tells for how many seconds a busy member is waited for since it first asked for time.
func (m *Machine) excuses() func(node string, asked busy) float64 {
	step, pauses, stepped := m.stepSeconds(), slices.Collect(maps.Values(m.state.Pauses)), m.stepped()
	return func(node string, asked busy) float64 {
		known := protocol.Record{Step: step, Pauses: pauses, Unkept: m.state.Failed[node].Unkept, Stepped: stepped(node)}
		return known.Excuse(asked.Seconds)
	}
}

// stepped returns a function that tells whether a member has made a step under the plan in force. A step ends for all who train or for
// nobody: where more than half of them tell of one, all have made it, whoever keeps that to itself.
func (m *Machine) stepped() func(node string) bool {
	if m.state.Plan == nil {
		return func(string) bool { return false }
	}
	train, tell := 0, 0
	holds := m.state.Plan.HoldsOfAll()
	has := func(node string) bool {
		member := m.state.Members[node]
		return member != nil && member.Stepped == m.state.Plan.Generation
	}
	for node := range holds {
		train++
		if has(node) {
			tell++
		}
	}
	return func(node string) bool {
		_, trains := holds[node]
		return has(node) || trains && 2*tell > train
	}
}

// unexcused returns which of the silent are not waited for any longer: those that did not ask for time, whose time is over, or
// of which nobody needs a unit, for they can claim later what they hold. Placed are the units of each member that trains.
func (m *Machine) unexcused(silent []string, placed map[string][]int, now time.Time) []string {
	lacking, excuse := m.lacksUnits(silent, placed), m.excuses()
	return slices.DeleteFunc(silent, func(node string) bool {
		asked, delayed := m.state.Busy[busyKey(m.state.Negotiation.Phase, node)]
		return delayed && now.Sub(asked.Since).Seconds() < excuse(node, asked) && (len(placed[node]) > 0 || lacking)
	})
}

// lacksUnits reports whether the members beside some do not have all units of the plan in force: a joiner may bring them.
func (m *Machine) lacksUnits(but []string, placed map[string][]int) bool {
	if m.state.Plan == nil {
		return true
	}
	missing := map[int]bool{}
	for node := range m.state.Plan.HoldsOfAll() {
		for unit := range events.Each(m.state.Plan.UnitsOf(node)) {
			missing[unit] = true
		}
	}
	for node, units := range placed {
		for _, unit := range units {
			if !slices.Contains(but, node) {
				delete(missing, unit)
			}
		}
	}
	return len(missing) > 0
}

// noteUnkept remembers which of those that are given up had time and did not answer in it: they have half as much next time.
func (m *Machine) noteUnkept(nodes []string, now time.Time) {
	for _, node := range nodes {
		if _, delayed := m.state.Busy[busyKey(m.state.Negotiation.Phase, node)]; delayed {
			failed := m.state.Failed[node]
			if merit.Forgotten(now.Sub(failed.Last).Seconds()) {
				failed = failures{}
			}
			failed.Unkept, failed.Last = failed.Unkept+1, now
			m.state.Failed[node] = failed
		}
	}
}

// excusedFor returns for how many seconds from the beginning of the present wait those are waited for who asked for time: until the
// first of them has had it. Zero: nobody asked, or whoever did had its time before the last answer was due, and is still waited for: it is
// the last to hold a unit. Waits that grow would else have it more than it was given.
func (m *Machine) excusedFor() float64 {
	if len(m.state.Busy) == 0 {
		return 0
	}
	phase, log, soonest := m.state.Negotiation.Phase, m.state.Heard.Add(m.since), 0.0
	least, excuse := m.answerSeconds(), m.excuses()
	for key, asked := range m.state.Busy {
		node, here := strings.CutPrefix(key, busyKey(phase, ""))
		if !here {
			continue
		}
		left := excuse(node, asked) - log.Sub(asked.Since).Seconds() + m.waits.waited.Seconds()
		if isOver := left < -least; isOver {
			continue
		}
		if left = max(left, least); soonest == 0 || left < soonest {
			soonest = left
		}
	}
	return soonest
}
