package machine

import (
	"fmt"

	"github.com/reknit/reknit/events"
)

func (m *Machine) join(cause events.Event, join events.Join) []events.Event {
	if m.state.Job != nil && m.state.Job.Digest != join.Job.Digest {
		return m.refuse(cause, join.Node, fmt.Sprintf("field %q: expected the cluster's job %s, got %s: model, data and seed must be equal",
			"job.digest", m.state.Job.Digest, join.Job.Digest))
	}
	if known := m.state.known(join.Node); known != nil {
		if known.Incarnation == join.Incarnation {
			return nil
		}
		m.forget(cause, join.Node) // the process was restarted before anybody missed it
	}
	if m.state.Job == nil {
		m.state.Job = &join.Job
	}
	m.state.Joiners[join.Node] = &member{
		Member:      events.Member{Node: join.Node, Incarnation: join.Incarnation, Address: join.Address},
		MemoryBytes: join.MemoryBytes,
		SpeedFactor: 1,
	}
	return m.take(cause, events.Change{Kind: events.ChangeJoin, Node: join.Node})
}

func (m *Machine) leave(cause events.Event, leave events.Leave) []events.Event {
	if m.state.Joiners[leave.Node] != nil {
		m.forget(cause, leave.Node)
		return m.negotiate(cause, true)
	}
	leaver := m.state.Members[leave.Node]
	if leaver == nil {
		return m.refuse(cause, leave.Node, `field "node": expected an active node`)
	}
	if leaver.Leaving {
		return nil
	}
	leaver.Leaving = true
	return m.take(cause, events.Change{Kind: events.ChangeLeave, Node: leave.Node})
}

func (m *Machine) nodeLost(cause events.Event, lost events.NodeState) []events.Event {
	m.state.Failures = lost.FailuresPerNodeSecond
	known := m.state.known(lost.Node)
	if known == nil || known.Incarnation != lost.Incarnation {
		return nil // an older incarnation, or long gone
	}
	var said []events.Event
	if m.state.Joiners[lost.Node] != nil {
		said = m.refuse(cause, lost.Node, "lost before it joined: "+lost.Reason) // should it live, it knows
	}
	m.forget(cause, lost.Node)
	return append(said, m.negotiate(cause, true)...)
}

// forget removes a node that is gone. An active one leaves a failure to be negotiated.
func (m *Machine) forget(cause events.Event, node string) {
	m.dropChanges(node)
	if m.state.Members[node] != nil {
		m.state.Pending = append(m.state.Pending, events.Change{Kind: events.ChangeFailure, Node: node, Cause: cause.ID})
	}
	delete(m.state.Members, node)
	delete(m.state.Joiners, node)
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

func (m *Machine) profiled(_ events.Event, profile events.Profile) []events.Event {
	if known := m.state.known(profile.Node); known != nil {
		known.SpeedFactor = profile.SpeedFactor
	}
	return nil
}

func (m *Machine) refuse(cause events.Event, node, reason string) []events.Event {
	return []events.Event{m.speaker.Say(cause, events.MembershipRefused, node, &events.Refusal{Node: node, Reason: reason})}
}

// take adds a change and negotiates it.
func (m *Machine) take(cause events.Event, change events.Change) []events.Event {
	change.Cause = cause.ID
	m.state.Pending = append(m.state.Pending, change)
	return m.negotiate(cause, urgent[change.Kind])
}

// urgent tells the changes after which the plan in force cannot be trained any more.
var urgent = map[string]bool{events.ChangeFailure: true, events.ChangeLinkLost: true}
