package machine

import (
	"fmt"
	"math"
	"slices"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

// planning is what the planner was asked, and said.
type planning struct {
	Asked    bool             `json:"asked,omitempty"` // the planner
	Proposal *events.Proposal `json:"proposal,omitempty"`
	Message  float64          `json:"message,omitempty"` // as the machine's, of the plan proposed
}

func (m *Machine) askPlanner() {
	m.state.Negotiation.Asked = true
	m.say(events.PlanRequested, m.state.Negotiation.ID, m.planRequest())
}

func (m *Machine) planRequest() *events.PlanRequest {
	under := m.state.Negotiation
	nodes := m.state.after(under.Opening.Changes)
	request := &events.PlanRequest{
		Negotiation: under.ID, Cluster: m.settings.Cluster, Generation: under.Opening.Generation,
		Changes: under.Opening.Changes, Job: m.measuredJob(), Current: m.inForce(),
	}
	links, usual, all := m.state.told(nodes, plannerLinks)
	if request.Links = links; !all {
		request.Usual = usual
	}
	speeds := m.speeds(&request.Job, nodes)
	for i, node := range nodes {
		request.Nodes = append(request.Nodes, events.Device{
			Member: node.Member, MemoryBytes: max(1, node.MemoryBytes-node.OtherBytes), OtherBytes: node.OtherBytes,
			StateCopies: node.StateCopies, SpeedFactor: speeds[i], Samples: node.Samples,
		})
	}
	request.CurrentStepSeconds, request.CurrentLeastSeconds = m.state.Measured.StepSeconds()
	request.CurrentComputeRatio = request.ComputeRatio(m.state.Measured.Passes())
	rate := m.state.Failures
	if rate <= 0 {
		rate = m.settings.FailuresPrior
	}
	request.SecondsBetweenFailures = math.Min(1/(rate*float64(len(nodes))), 1e9)
	request.SwitchSeconds, request.RestartSeconds = m.state.Prices.Switch, m.state.Prices.Restart
	if m.mayWait() {
		request.SecondsUntilReturn = m.state.Returns
	}
	return request
}

// inForce is what a request tells of the plan in force: who trains what, and where they stand; nothing where training begins. Nobody who is
// asked needs the rest: what moved, how gradients are reduced, predictions but for what was learnt, rivals and addresses, together half of
// a plan of 100 nodes.
func (m *Machine) inForce() *events.Plan {
	plan := m.state.Plan
	if m.isFirst() {
		return nil
	}
	told := *plan
	told.Sync, told.Migration, told.Predicted, told.Considered = events.Sync{}, events.Migration{},
		events.Predicted{Correction: plan.Predicted.Correction, OverheadSeconds: plan.Predicted.OverheadSeconds,
			OwnSeconds: plan.Predicted.OwnSeconds, Unmeasured: plan.Predicted.Unmeasured}, nil
	told.Idle = nil
	told.Nodes = slices.Clone(plan.Nodes)
	for i, member := range told.Nodes {
		told.Nodes[i] = events.Member{Node: member.Node, Incarnation: member.Incarnation, Site: member.Site}
	}
	return &told
}

// mayWait reports whether the nodes that the plan in force will miss may come back: they failed, and nobody leaves.
func (m *Machine) mayWait() bool {
	opening, failed, leaves := m.state.Negotiation.Opening, false, false
	for _, change := range opening.Changes {
		failed = failed || change.Kind == events.ChangeFailure
		leaves = leaves || change.Kind == events.ChangeLeave
	}
	return opening.Abandon && !opening.Begins && failed && !leaves && !m.state.Deferred
}

// isProposed reports whether there is a proposal and everybody has said what it holds.
func (m *Machine) isProposed() bool {
	under := m.state.Negotiation
	return under.Proposal != nil && len(under.Consents) >= len(under.Opening.Members)
}

func (m *Machine) proposed(proposal events.Proposal) {
	under := m.under(proposal.Negotiation, protocol.Consenting, protocol.Planning)
	if under == nil {
		return
	}
	if got, want := proposal.Plan.UnitCount(), m.state.Job.Units(); got != want {
		m.impossible(events.Failure{Negotiation: proposal.Negotiation,
			Reason: fmt.Sprintf("the plan proposed has %d layers and partitions of layers: expected the job's %d", got, want)})
		return
	}
	under.Proposal, under.Message = &proposal, m.message(&proposal.Plan)
}

// deferred hears that waiting for the lost nodes is best. The cluster holds until one of them asks to join, anything
// else changes, or they have been waited for long enough; then a plan is asked for that does without them.
func (m *Machine) deferred(deferral events.Deferral) {
	under := m.under(deferral.Negotiation, protocol.Consenting, protocol.Planning)
	if under == nil || under.Outdated || !under.Opening.Abandon || m.state.Deferred {
		m.impossible(events.Failure{Negotiation: deferral.Negotiation, Reason: deferral.Reason})
		return
	}
	m.state.Deferred = true
	m.ends(deferral.Reason)
	m.stuckFor(deferral.Seconds, deferral.Reason)
}
