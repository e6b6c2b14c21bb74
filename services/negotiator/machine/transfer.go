package machine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

// transferring is whether all units have come.
type transferring struct {
	moved bool // all units, or none had to
}

// mostBlame is how many transfers in a row may fail by one node's fault: then the others go on without it.
const mostBlame = 3

// transfer has the units moved while all are paused, if any has to move.
func (m *Machine) transfer() {
	under := m.state.Negotiation
	under.enter(protocol.Transferring)
	if under.moved = len(under.Plan.Migration.Transfers) == 0; under.moved {
		return
	}
	m.say(events.Scheduled, under.ID, &events.Schedule{
		Negotiation: under.ID, StopStep: under.StopStep, Plan: *m.finalPlan(),
	})
}

func (m *Machine) restored(completion events.Completion) {
	if under := m.under(completion.Negotiation, protocol.Transferring); under != nil {
		under.moved = true
	}
}

// hasMoved reports whether every receiver verified its units.
func (m *Machine) hasMoved() bool { return m.state.Negotiation.moved }

func (m *Machine) transferFailed(failure events.Failure) {
	under := m.under(failure.Negotiation, protocol.PreCopying, protocol.Transferring)
	switch {
	case under == nil || !concerns(under.Plan, m.cause.Source):
		return
	case under.Phase == protocol.PreCopying:
		under.Awaited = nil // what is wrong shows where all are paused
		return
	}
	blamed := m.toBlame(failure)
	misread := m.misreading(failure, blamed)
	if m.cause.Source != restorer {
		failure.Units = nil // a node tells what it could not read, or could not verify
	}
	for _, node := range misread {
		m.noteMisread(node, failure.Reason, failure.Units, len(misread) > 1)
	}
	m.retry("transfer failed: "+failure.Reason, blamed)
}

// lateTransfer waits once more as long for the restorer, which hears the same fact and says whose part is missing. One
// that does not say it has lost sight of the transfer.
func (m *Machine) lateTransfer() {
	under := m.state.Negotiation
	if under.Round++; under.Round == 1 {
		return
	}
	m.retry("the transfer did not end in time, and the restorer does not say who holds it up")
}

// transferSeconds is how long units may move: while training goes on, before a leaver's deadline with time to pause in;
// or from when the members are told at which step to stop.
func (m *Machine) transferSeconds() float64 {
	under := m.state.Negotiation
	limit := protocol.TransferSeconds(m.settings.TransferTime.Seconds(), under.Plan.Predicted.TransitionSeconds)
	switch {
	case under.Phase == protocol.Transferring:
		limit += protocol.ComeSeconds(m.stepSeconds())
	case under.Grace > 0:
		limit = min(limit, under.Grace)
	}
	return limit
}

// retry plans a transfer anew. Nobody is to blame where the hub is. A node that was to blame again and again is given up, if the others can
// do without what it holds. So is a node that alone tells of failures again and again, whomever it blames. Otherwise the cluster holds
// after a bounded number of attempts.
func (m *Machine) retry(reason string, blamed ...string) {
	_, last := protocol.Spare(m.state.placed(), blamed)
	m.noteAlone(last)
	var tired []string
	for _, node := range m.spare(blamed...) {
		m.state.Blamed[node]++
		if m.state.Blamed[node] >= mostBlame {
			tired = append(tired, node)
			delete(m.state.Blamed, node)
		}
	}
	if len(tired) > 0 {
		m.state.Tellers = nil
		m.giveUp(tired, fmt.Sprintf("%d transfers failed by its fault, the last: %s", mostBlame, reason), false)
		return
	}
	m.state.Tellers = append(m.state.Tellers, m.cause.Source)
	if len(m.state.Tellers) < m.settings.AttemptsLimit {
		m.ends(reason)
		return
	}
	tellers := slices.Compact(m.state.Tellers)
	m.state.Tellers = nil
	if node, isNode := strings.CutPrefix(tellers[0], events.NodeSource("")); isNode && len(tellers) == 1 && len(m.spare(node)) == 1 {
		m.giveUp([]string{node}, fmt.Sprintf("it alone says that transfers fail, %d in a row, the last: %s",
			m.settings.AttemptsLimit, reason), false)
		return
	}
	if len(last) > 0 {
		reason += fmt.Sprintf(". %s alone has what others need, and is never given up for that: mend it, or end its script and its agent. "+
			"Once it has ended, training goes on from what others have, or holds until: reknit cluster reset", named(last, itself))
		m.ends(reason)
		m.stuck(reason, last...)
		return
	}
	m.ends(reason)
	m.stuck(reason)
}

// spare returns the nodes without which the others can go on: what they hold other members hold. A claim spares no last holder: it may be
// of other bytes, and nobody else could contradict it.
func (m *Machine) spare(nodes ...string) []string {
	spare, _ := protocol.Spare(m.state.placed(),
		slices.DeleteFunc(nodes, func(node string) bool { return m.state.known(node) == nil }))
	return spare
}
