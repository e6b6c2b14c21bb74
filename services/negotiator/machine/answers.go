package machine

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

// under returns the negotiation under way if it is the one named and in the phase expected. Anything else is a late
// or repeated answer and has no effect.
func (m *Machine) under(id string, phases ...protocol.Phase) *negotiation {
	under := m.state.Negotiation
	if under == nil || under.ID != id || !slices.Contains(phases, under.Phase) {
		return nil
	}
	return under
}

func (n *negotiation) takesPart(node, incarnation string) bool {
	return slices.ContainsFunc(n.Opening.Members, func(member events.Member) bool {
		return member.Node == node && (incarnation == "" || member.Incarnation == incarnation)
	})
}

func (m *Machine) consented(cause events.Event, consent events.Consent) []events.Event {
	under := m.under(consent.Negotiation, protocol.Consenting)
	if under == nil || !under.takesPart(consent.Node, consent.Incarnation) {
		return nil
	}
	if !consent.Accepted {
		return m.objected(cause, consent)
	}
	for _, measured := range consent.Measurements {
		m.linkMeasured(cause, measured)
	}
	under.Consents[consent.Node] = consent
	if len(under.Consents) < len(under.Opening.Members) {
		return nil
	}
	if under.Opening.Abandon {
		return m.restore(cause)
	}
	under.Phase = protocol.Planning
	return []events.Event{m.say(cause, events.PlanRequested, m.planRequest())}
}

// objected ends a negotiation that a member does not accept. The changes that node takes part in are refused; a
// failure cannot be.
func (m *Machine) objected(cause events.Event, consent events.Consent) []events.Event {
	refuse := m.refuseChanges("not accepted: "+consent.Reason, func(change events.Change) bool {
		return objectionable[change.Kind] && (change.Node == consent.Node || change.Peer == consent.Node)
	})
	return m.abort(cause, consent.Node+" does not consent: "+consent.Reason, refuse)
}

// objectionable are the changes that need the consent of who takes part in them.
var objectionable = map[string]bool{events.ChangeConnect: true, events.ChangeRestored: true, events.ChangeJoin: true}

// refuseChanges drops the pending changes that match and can be refused, tells who asked, and goes on with the rest.
func (m *Machine) refuseChanges(reason string, match func(events.Change) bool) func(events.Event) []events.Event {
	return func(cause events.Event) []events.Event {
		var said []events.Event
		var kept []events.Change
		told := map[string]bool{} // one cause says one refusal to a node; its first request stands for the others
		for _, change := range m.state.Pending {
			if urgent(change) || !match(change) {
				kept = append(kept, change)
				continue
			}
			if !told[change.Node] {
				said = append(said, m.refuseChange(cause, change, reason)...)
			}
			told[change.Node] = true
			m.undo(change)
		}
		m.state.Pending = kept
		return append(said, m.openNext(cause)...)
	}
}

func (m *Machine) refuseChange(cause events.Event, change events.Change, reason string) []events.Event {
	refusal := refusalOf(change.Kind, change.Node, reason)
	if joiner := m.state.Joiners[change.Node]; joiner != nil {
		refusal.Incarnation = joiner.Incarnation
	}
	return m.refuse(cause, refusal)
}

// undo takes back what a refused change had already set.
func (m *Machine) undo(change events.Change) {
	switch change.Kind {
	case events.ChangeJoin:
		delete(m.state.Joiners, change.Node)
	case events.ChangeLeave:
		if leaver := m.state.Members[change.Node]; leaver != nil {
			leaver.Leaving = false
		}
	case events.ChangeConnect:
		m.state.Cut[pairKey(change.Node, change.Peer)] = true
	case events.ChangeRestored:
		m.markLost(events.LinkState{From: change.Node, To: change.Peer}, true)
	case events.ChangeDisconnect:
		delete(m.state.Cut, pairKey(change.Node, change.Peer))
	}
}

func (m *Machine) proposed(cause events.Event, proposal events.Proposal) []events.Event {
	under := m.under(proposal.Negotiation, protocol.Consenting, protocol.Planning)
	if under == nil {
		return nil
	}
	if got, want := proposal.Plan.UnitCount(), m.state.Job.Units(); got != want {
		return m.impossible(cause, events.Failure{Negotiation: proposal.Negotiation,
			Reason: fmt.Sprintf("the plan proposed has %d layers and partitions of layers: expected the job's %d", got, want)})
	}
	under.Proposal = &proposal
	return m.restore(cause)
}

// impossible hears that the planner or the restorer has no answer. Changes that were asked for are refused and
// training goes on as it was; after a failure there is no way back, and the cluster holds until something changes.
func (m *Machine) impossible(cause events.Event, failure events.Failure) []events.Event {
	under := m.under(failure.Negotiation, protocol.Consenting, protocol.Planning, protocol.Restoring)
	if under == nil {
		return nil
	}
	if under.Opening.Abandon {
		return m.abort(cause, failure.Reason, m.hold(failure.Reason))
	}
	return m.abort(cause, failure.Reason, m.refuseChanges(failure.Reason, func(change events.Change) bool {
		return slices.Contains(under.Opening.Changes, change)
	}))
}

// deferred hears that waiting for the lost nodes is best. The cluster holds until one of them asks to join, anything
// else changes, or they have been waited for long enough; then a plan is asked for that does without them.
func (m *Machine) deferred(cause events.Event, deferral events.Deferral) []events.Event {
	under := m.under(deferral.Negotiation, protocol.Consenting, protocol.Planning)
	if under == nil || !under.Opening.Abandon || m.state.Waited {
		return m.impossible(cause, events.Failure{Negotiation: deferral.Negotiation, Reason: deferral.Reason})
	}
	m.state.Waited, m.state.Patience = true, deferral.Seconds
	return m.abort(cause, deferral.Reason, m.hold(deferral.Reason))
}

// restore asks the restorer, once there is a proposal and everybody has said what it holds.
func (m *Machine) restore(cause events.Event) []events.Event {
	under := m.state.Negotiation
	if under.Proposal == nil || len(under.Consents) < len(under.Opening.Members) {
		return nil
	}
	request := &events.RestorationRequest{
		Negotiation: under.ID, Proposal: *under.Proposal, Links: m.state.links(),
		Unreachable: m.state.relays(under.Opening.Members), Current: m.state.Plan,
		Units: m.state.Job.UnitBytes(), Gradients: m.state.Job.GradientBytes(),
	}
	if under.FixedStep {
		resume, missing, ok := protocol.ResumePoint(m.state.Job.Units(), under.held())
		if !ok {
			reason := m.lost(missing)
			return m.abort(cause, reason, m.hold(reason))
		}
		under.StopStep = resume.Step
		request.Holders = holders(resume.Holders)
	} else {
		request.Holders = holders(under.current())
	}
	under.Phase = protocol.Restoring
	return []events.Event{m.say(cause, events.RestorationAsked, request)}
}

// lost says why there is no step to go on from: rows that nobody holds, the first few by name.
func (m *Machine) lost(rows []int) string {
	if len(rows) == 0 {
		return "no step has a live holder of every layer, and there is no snapshot to go back to"
	}
	const mostNames = 8
	var names []string
	for _, row := range rows[:min(len(rows), mostNames)] {
		names = append(names, events.UnitName(row, len(m.state.Job.Layers)))
	}
	if more := len(rows) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return fmt.Sprintf("no live node holds %s, and there is no snapshot to take it from", strings.Join(names, ", "))
}

func (n *negotiation) held() []protocol.Held {
	var held []protocol.Held
	for _, node := range slices.Sorted(maps.Keys(n.Consents)) {
		for _, holding := range n.Consents[node].Holdings {
			held = append(held, protocol.Held{Node: node, First: holding.Units.First, End: holding.Units.End, Steps: holding.Steps})
		}
	}
	return held
}

// current returns the layers that each node trains now: it will hold them at whatever step all stop.
func (n *negotiation) current() map[string][]int {
	holders := map[string][]int{}
	for node, consent := range n.Consents {
		for _, holding := range consent.Holdings {
			for layer := holding.Units.First; holding.Current && layer < holding.Units.End; layer++ {
				holders[node] = append(holders[node], layer)
			}
		}
	}
	return holders
}

func holders(layers map[string][]int) []events.Holder {
	var list []events.Holder
	for _, node := range slices.Sorted(maps.Keys(layers)) {
		holder := events.Holder{Node: node}
		for _, span := range protocol.Ranges(layers[node]) {
			holder.Units = append(holder.Units, events.Range{First: span[0], End: span[1]})
		}
		list = append(list, holder)
	}
	return list
}

func (m *Machine) restorationPlanned(cause events.Event, restoration events.Restoration) []events.Event {
	under := m.under(restoration.Negotiation, protocol.Restoring)
	if under == nil {
		return nil
	}
	under.Plan = &restoration.Plan
	switch {
	case under.FixedStep:
		return m.move(cause)
	case m.worthFollowing() && under.canFollow():
		return m.start(cause)
	}
	return m.prepare(cause)
}

// prepare asks all who train for the step at which they can stop.
func (m *Machine) prepare(cause events.Event) []events.Event {
	under := m.state.Negotiation
	under.Phase, under.Overdue = protocol.Promising, 0
	return []events.Event{m.say(cause, events.Prepared, &events.Preparation{
		Negotiation: under.ID, Generation: under.Opening.Generation,
	})}
}

func (m *Machine) promised(cause events.Event, promise events.Promise) []events.Event {
	under := m.under(promise.Negotiation, protocol.Promising)
	if under == nil || !under.takesPart(promise.Node, "") {
		return nil
	}
	under.Promises[promise.Node] = promise.StopStep
	if len(m.silent()) > 0 {
		return nil
	}
	under.StopStep = protocol.StopStep(slices.Collect(maps.Values(under.Promises)))
	return m.move(cause)
}

// move commits at once where nothing has to move, and schedules the transfers otherwise.
func (m *Machine) move(cause events.Event) []events.Event {
	under := m.state.Negotiation
	if len(under.Plan.Migration.Transfers) == 0 {
		return m.commit(cause)
	}
	under.Phase, under.Overdue = protocol.Transferring, 0
	return []events.Event{m.say(cause, events.Scheduled, &events.Schedule{
		Negotiation: under.ID, StopStep: under.StopStep, Plan: *m.finalPlan(),
	})}
}

func (m *Machine) restored(cause events.Event, completion events.Completion) []events.Event {
	if m.under(completion.Negotiation, protocol.Transferring) == nil {
		return nil
	}
	return m.commit(cause)
}

func (m *Machine) transferFailed(cause events.Event, failure events.Failure) []events.Event {
	under := m.under(failure.Negotiation, protocol.PreCopying, protocol.Transferring)
	switch {
	case under == nil:
		return nil
	case under.Phase == protocol.PreCopying:
		return m.prepare(cause) // what is wrong shows where all stand
	}
	return m.retry(cause, "transfer failed: "+failure.Reason)
}

// retry plans a transfer anew, a bounded number of times.
func (m *Machine) retry(cause events.Event, reason string) []events.Event {
	m.state.Attempts++
	if m.state.Attempts < m.settings.AttemptsLimit {
		return m.abort(cause, reason, m.openNext)
	}
	m.state.Attempts = 0
	return m.abort(cause, reason, m.hold(reason))
}
