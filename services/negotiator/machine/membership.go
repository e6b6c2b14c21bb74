package machine

import (
	"fmt"
	"maps"
	"slices"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

func (m *Machine) join(cause events.Event, join events.Join) []events.Event {
	if reason := m.otherJob(join.Job); reason != "" {
		refusal := refusalOf(events.ChangeJoin, join.Node, reason)
		refusal.Incarnation = join.Incarnation
		return []events.Event{m.speaker.Say(cause, events.MembershipRefused, join.Node, &refusal)}
	}
	urgency := protocol.Patient
	if known := m.state.known(join.Node); known != nil {
		if known.Incarnation == join.Incarnation {
			return nil
		}
		urgency = m.concerns(join.Node) // it restarted before anybody missed it
		m.forget(cause, join.Node)
	}
	if m.state.Job == nil {
		m.state.Job = &join.Job
	}
	m.state.Joiners[join.Node] = &member{
		Member: events.Member{
			Node: join.Node, Incarnation: join.Incarnation, Address: join.Address, ShardAddress: join.ShardAddress, PreCopies: join.PreCopies,
		},
		MemoryBytes: join.MemoryBytes,
		SpeedFactor: m.usualSpeed(),
	}
	m.state.Pending = append(m.state.Pending, events.Change{Kind: events.ChangeJoin, Node: join.Node, Cause: cause.ID})
	return m.negotiate(cause, urgency)
}

// otherJob says why a job is not the cluster's; empty where it is.
func (m *Machine) otherJob(job events.Job) string {
	switch own := m.state.Job; {
	case own == nil:
	case own.Digest != job.Digest:
		return fmt.Sprintf("field %q: expected the cluster's job %s, got %s: model, data and seed must be equal", "job.digest", own.Digest, job.Digest)
	case len(own.Layers) != len(job.Layers):
		return fmt.Sprintf("field %q: expected the %d layers of the cluster's job, got %d", "job.layers", len(own.Layers), len(job.Layers))
	case own.OptimizerPartitions != job.OptimizerPartitions:
		return fmt.Sprintf("field %q: expected the %d of the cluster's job, got %d", "job.optimizerPartitions", own.OptimizerPartitions, job.OptimizerPartitions)
	}
	return ""
}

// usualSpeed is what a newcomer is taken to have until it is measured: the median of the members', or else what the job
// declares.
func (m *Machine) usualSpeed() float64 {
	if len(m.state.Members) == 0 {
		return 1
	}
	var speeds []float64
	for _, node := range slices.Sorted(maps.Keys(m.state.Members)) {
		speeds = append(speeds, m.state.Members[node].SpeedFactor)
	}
	slices.Sort(speeds)
	return speeds[len(speeds)/2]
}

func (m *Machine) leave(cause events.Event, leave events.Leave) []events.Event {
	if m.state.Joiners[leave.Node] != nil {
		urgency := m.concerns(leave.Node)
		m.forget(cause, leave.Node)
		return m.negotiate(cause, urgency)
	}
	leaver := m.state.Members[leave.Node]
	if leaver == nil {
		return m.refuse(cause, refusalOf(events.ChangeLeave, leave.Node, `field "node": expected an active node`))
	}
	if leaver.Leaving {
		return nil
	}
	leaver.Leaving = true
	return m.take(cause, events.Change{Kind: events.ChangeLeave, Node: leave.Node})
}

func (m *Machine) nodeLost(cause events.Event, lost events.NodeState) []events.Event {
	m.state.Failures, m.state.Returns = lost.FailuresPerNodeSecond, lost.SecondsUntilReturn
	known := m.state.known(lost.Node)
	if known == nil || known.Incarnation != lost.Incarnation {
		return nil // an older incarnation, or long gone
	}
	said := m.endMembership(cause, lost.Node, "lost: "+lost.Reason) // should it live, it hears so
	urgency := m.concerns(lost.Node)
	m.forget(cause, lost.Node)
	return append(said, m.negotiate(cause, urgency)...)
}

// concerns returns how urgent it is that a node is gone: whether it trains, or has a part in the negotiation under way.
func (m *Machine) concerns(node string) protocol.Urgency {
	if m.state.Members[node] != nil || m.state.Negotiation != nil && m.state.Negotiation.takesPart(node, "") {
		return protocol.Urgent
	}
	return protocol.Patient
}

// forget removes a node that is gone. An active one leaves a failure to be negotiated.
func (m *Machine) forget(cause events.Event, node string) {
	m.dropChanges(node)
	if m.state.Members[node] != nil {
		m.state.Pending = append(m.state.Pending, events.Change{Kind: events.ChangeFailure, Node: node, Cause: cause.ID})
	}
	delete(m.state.Members, node)
	delete(m.state.Joiners, node)
	m.forgetLinks(node)
}

// dropChanges removes the pending changes that a node asked for.
func (m *Machine) dropChanges(node string) {
	var kept []events.Change
	for _, change := range m.state.Pending {
		if change.Node != node || change.Kind == events.ChangeFailure {
			kept = append(kept, change)
		}
	}
	m.state.Pending = kept
}

// diverged gives up who holds other layers than most. It joins again and is given them anew; what it trained since it went
// astray is in everybody's gradients.
func (m *Machine) diverged(cause events.Event, divergence events.Divergence) []events.Event {
	astray := slices.DeleteFunc(slices.Clone(divergence.Minority), func(node string) bool { return m.state.Members[node] == nil })
	if divergence.Generation != m.state.generation() || len(astray) == 0 {
		return nil
	}
	return m.giveUp(cause, astray, fmt.Sprintf("layer %d at step %d differs from that of most of its holders", divergence.Unit, divergence.Step))
}

func (m *Machine) profiled(_ events.Event, profile events.Profile) []events.Event {
	if known := m.state.known(profile.Node); known != nil {
		known.SpeedFactor = profile.SpeedFactor
	}
	return nil
}

func refusalOf(refused, node, reason string) events.Refusal {
	return events.Refusal{Node: node, Refused: refused, Reason: reason}
}

func (m *Machine) refuse(cause events.Event, refusal events.Refusal) []events.Event {
	return []events.Event{m.speaker.Say(cause, events.MembershipRefused, refusal.Node, &refusal)}
}

// endMembership tells a node that it is taken for lost.
func (m *Machine) endMembership(cause events.Event, node, reason string) []events.Event {
	refusal := refusalOf(events.RefusedMembership, node, reason)
	refusal.Incarnation = m.state.known(node).Incarnation
	return m.refuse(cause, refusal)
}

// take adds a change and negotiates it.
func (m *Machine) take(cause events.Event, change events.Change) []events.Event {
	change.Cause = cause.ID
	m.state.Pending = append(m.state.Pending, change)
	return m.negotiate(cause, urgencies[change.Kind])
}

// urgencies tells the changes that cannot always wait.
var urgencies = map[string]protocol.Urgency{
	events.ChangeFailure: protocol.Urgent, events.ChangeLinkLost: protocol.Urgent, events.ChangeLeave: protocol.Pressing,
}

// urgent reports whether the plan in force cannot be trained any more after a change.
func urgent(change events.Change) bool { return urgencies[change.Kind] == protocol.Urgent }
