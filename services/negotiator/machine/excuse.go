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
func (m *Machine) delayed(cause events.Event, delay events.Delay) []events.Event {
	under := m.under(delay.Negotiation, protocol.Consenting, protocol.Promising)
	if under != nil && under.takesPart(delay.Node, delay.Incarnation) && slices.Contains(m.silent(), delay.Node) {
		asked := m.state.Busy[busyKey(under.Phase, delay.Node)]
		if asked.Seconds = delay.Seconds; asked.Since.IsZero() {
			asked.Since = cause.Logged
		}
		m.state.Busy[busyKey(under.Phase, delay.Node)] = asked
	}
	return nil
}

// excuse returns for how many seconds a busy member is waited for since it first asked for time.
func (m *Machine) excuse(node string, asked busy) float64 {
	known := protocol.Record{
		Step: m.stepSeconds(), Pauses: slices.Collect(maps.Values(m.state.Pauses)), Unkept: m.state.Failed[node].Unkept,
	}
	if member := m.state.Members[node]; member != nil && m.state.Plan != nil {
		known.Stepped = member.Stepped == m.state.Plan.Generation
	}
	return known.Excuse(asked.Seconds)
}

// unexcused returns which of the silent are not waited for any longer: those that did not ask for time, whose time is over, or
// of which nobody needs a unit, for they can claim later what they hold. Placed are the units of each member that trains.
func (m *Machine) unexcused(silent []string, placed map[string][]int, now time.Time) []string {
	lacking := m.lacksUnits(silent, placed)
	return slices.DeleteFunc(silent, func(node string) bool {
		asked, delayed := m.state.Busy[busyKey(m.state.Negotiation.Phase, node)]
		return delayed && now.Sub(asked.Since).Seconds() < m.excuse(node, asked) && (len(placed[node]) > 0 || lacking)
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
// first of them has had it. Zero: nobody asked. Waits that grow would else have it more than it was given.
func (m *Machine) excusedFor() float64 {
	phase, log, soonest := m.state.Negotiation.Phase, m.state.Heard.Add(m.since), 0.0
	for key, asked := range m.state.Busy {
		node, here := strings.CutPrefix(key, busyKey(phase, ""))
		if !here {
			continue
		}
		left := m.excuse(node, asked) - log.Sub(asked.Since).Seconds() + m.waits.waited.Seconds()
		if left = max(left, m.answerSeconds()); soonest == 0 || left < soonest {
			soonest = left
		}
	}
	return soonest
}
