package machine

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

// negotiate takes up the pending changes: at once, or in place of the negotiation under way, or after it.
func (m *Machine) negotiate(cause events.Event, urgency protocol.Urgency) []events.Event {
	under := m.state.Negotiation
	switch {
	case under == nil:
		return m.openNext(cause)
	case !protocol.Supersedes(urgency, under.Phase, under.Started):
		return nil
	}
	return m.abort(cause, "the changes are others now", m.openNext)
}

// openNext opens a negotiation of all pending changes, if there are any that can be negotiated.
func (m *Machine) openNext(cause events.Event) []events.Event {
	if len(m.state.Pending) == 0 {
		return nil
	}
	if m.state.Plan == nil && len(m.state.Joiners) < m.settings.StartNodes {
		return nil
	}
	if len(m.state.next()) == 0 {
		return m.lastOnes(cause)
	}
	m.state.Held, m.state.Patience = 0, 0
	abandon := m.mustAbandon()
	m.state.Abandoned = abandon
	generation := m.state.generation() + 1
	under := &negotiation{
		ID:    fmt.Sprintf("g%d-%.12s", generation, strings.TrimPrefix(events.Digest([]byte(cause.ID)), "sha256:")),
		Phase: protocol.Consenting, Trace: cause.Traceparent,
		Consents: map[string]events.Consent{}, Promises: map[string]uint64{}, FixedStep: abandon,
	}
	under.Opening = events.Opening{
		Negotiation: under.ID, Generation: generation, Changes: slices.Clone(m.state.Pending),
		Members: membersOf(m.state.everybody()), Abandon: abandon, Connect: m.linksToOpen(),
	}
	m.state.Negotiation = under
	said := []events.Event{m.say(cause, events.NegotiationOpened, &under.Opening)}
	if abandon {
		said = append(said, m.say(cause, events.PlanRequested, m.planRequest()))
	}
	return said
}

// lastOnes answers when nobody would be left. Who wants to leave may not: the layers would be lost.
func (m *Machine) lastOnes(cause events.Event) []events.Event {
	if len(m.state.Members) == 0 {
		return m.hold("no node is left")(cause)
	}
	return m.refuseChanges("no node would be left to hold the layers", func(change events.Change) bool {
		return change.Kind == events.ChangeLeave
	})(cause)
}

// mustAbandon reports whether the step under way cannot end: a node with a place is gone, a link in use broke, or a
// step was abandoned already. Before the first plan everybody stands still anyway.
func (m *Machine) mustAbandon() bool {
	if m.state.Plan == nil || m.state.Abandoned {
		return true
	}
	return slices.ContainsFunc(m.state.Pending, func(change events.Change) bool {
		_, placed := m.state.Plan.Holds(change.Node)
		return urgent(change) && placed
	})
}

// linksToOpen returns the links that must be opened and measured: those asked for, and those of joiners.
func (m *Machine) linksToOpen() []events.Pair {
	if m.state.Plan == nil {
		return nil // the monitor measures the first links while training runs
	}
	var pairs []events.Pair
	for _, change := range m.state.Pending {
		switch change.Kind {
		case events.ChangeConnect, events.ChangeRestored:
			pairs = append(pairs, events.PairOf(change.Node, change.Peer))
		case events.ChangeJoin:
			for _, neighbour := range m.state.next() {
				if neighbour.Node != change.Node && m.state.Members[neighbour.Node] != nil {
					pairs = append(pairs, events.PairOf(change.Node, neighbour.Node))
				}
			}
		}
	}
	return pairs
}

func (m *Machine) planRequest() *events.PlanRequest {
	under, nodes := m.state.Negotiation, m.state.next()
	request := &events.PlanRequest{
		Negotiation: under.ID, Cluster: m.settings.Cluster, Generation: under.Opening.Generation,
		Changes: under.Opening.Changes, Job: *m.state.Job, Links: m.state.links(), Current: m.state.Plan,
	}
	for _, node := range nodes {
		request.Nodes = append(request.Nodes, events.Device{Member: node.Member, MemoryBytes: node.MemoryBytes, SpeedFactor: node.SpeedFactor})
	}
	rate := m.state.Failures
	if rate <= 0 {
		rate = m.settings.FailuresPrior
	}
	request.SecondsBetweenFailures = math.Min(1/(rate*float64(len(nodes))), 1e9)
	if m.mayWait() {
		request.SecondsUntilReturn = m.state.Returns
	}
	return request
}

// mayWait reports whether the nodes that the plan in force will miss may come back: they failed, and nobody leaves.
func (m *Machine) mayWait() bool {
	opening, failed, leaves := m.state.Negotiation.Opening, false, false
	for _, change := range opening.Changes {
		failed = failed || change.Kind == events.ChangeFailure
		leaves = leaves || change.Kind == events.ChangeLeave
	}
	return opening.Abandon && failed && !leaves && !m.state.Waited
}

// say tells a fact of the negotiation under way.
func (m *Machine) say(cause events.Event, kind events.Kind, payload events.Payload) events.Event {
	return m.speaker.Say(cause, kind, m.state.Negotiation.ID, payload)
}

// abort ends the negotiation under way without a plan, and goes on with what comes after; its changes stay pending.
// Trainers that promised to stop are free again, unless another negotiation follows at once.
func (m *Machine) abort(cause events.Event, reason string, after func(events.Event) []events.Event) []events.Event {
	under := m.state.Negotiation
	m.state.Negotiation = nil
	followed := after(cause)
	aborted := m.speaker.Say(cause, events.Aborted, under.ID, &events.Abort{
		Negotiation: under.ID, Generation: under.Opening.Generation, Reason: reason, Superseded: m.state.Negotiation != nil,
	})
	return append([]events.Event{aborted}, followed...)
}

// hold says that nothing can be done until the world changes; it is tried again from time to time.
func (m *Machine) hold(reason string) func(events.Event) []events.Event {
	return func(cause events.Event) []events.Event {
		m.state.Held++
		m.state.Holds++
		return []events.Event{m.speaker.Say(cause, events.ClusterHeld, m.settings.Cluster,
			&events.Hold{Reason: reason})}
	}
}

// commit writes the plan of the negotiation under way and makes it the plan in force.
func (m *Machine) commit(cause events.Event) []events.Event {
	under := m.state.Negotiation
	plan := m.finalPlan()
	committed := m.speaker.Say(cause, events.PlanCommitted, strconv.FormatUint(plan.Generation, 10), plan)
	digest := events.Digest(committed.Data)
	// The fenced fact goes first: an instance that lost its lease is refused there and never reaches the plan.
	said := []events.Event{m.say(cause, events.Committed, &events.Commitment{
		Negotiation: under.ID, Generation: plan.Generation, PlanDigest: digest,
	}), committed}
	for _, member := range under.Opening.Members {
		if joiner := m.state.Joiners[member.Node]; joiner != nil {
			delete(m.state.Joiners, member.Node)
			m.state.Members[member.Node] = joiner
		}
		if under.leaves(member.Node) {
			delete(m.state.Members, member.Node)
			m.forgetLinks(member.Node)
		}
	}
	m.state.Pending = without(m.state.Pending, under.Opening.Changes)
	m.state.Plan, m.state.PlanDigest, m.state.Negotiation = plan, digest, nil
	m.state.Abandoned, m.state.Attempts, m.state.Waited = false, 0, false
	return append(said, m.openNext(cause)...)
}

// finalPlan fills in what only the negotiator knows.
func (m *Machine) finalPlan() *events.Plan {
	under := m.state.Negotiation
	plan := *under.Plan
	plan.Cluster, plan.Generation, plan.Parent = m.settings.Cluster, under.Opening.Generation, m.state.PlanDigest
	plan.Nodes = m.nodesOf(under)
	plan.Relays = m.state.relays(plan.Nodes)
	plan.ResumeStep = under.StopStep
	plan.Data.ConsumedSamples = under.StopStep * uint64(plan.Data.GlobalBatch)
	return &plan
}

// nodesOf returns the members after the negotiation: those it opened with, less who leaves. A node that asked to
// join since is not among them; its change is still pending.
func (m *Machine) nodesOf(under *negotiation) []events.Member {
	var nodes []events.Member
	for _, member := range under.Opening.Members {
		if known := m.state.known(member.Node); known != nil && !under.leaves(member.Node) {
			nodes = append(nodes, member)
		}
	}
	return nodes
}

func (n *negotiation) leaves(node string) bool {
	return slices.ContainsFunc(n.Opening.Changes, func(change events.Change) bool {
		return change.Kind == events.ChangeLeave && change.Node == node
	})
}

func without(pending, done []events.Change) []events.Change {
	return slices.DeleteFunc(slices.Clone(pending), func(change events.Change) bool {
		return slices.Contains(done, change)
	})
}
