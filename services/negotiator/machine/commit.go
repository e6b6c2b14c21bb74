package machine

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

// training is the plan in force, and how far it came under it.
type training struct {
	Plan       *events.Plan     `json:"plan,omitempty"`
	PlanDigest string           `json:"planDigest,omitempty"`
	Data       protocol.Data    `json:"data,omitempty"`
	History    protocol.History `json:"history,omitzero"`
	WentBack   bool             `json:"wentBack"`          // the plan in force: to an older step than the one before had reached
	Unbegun    bool             `json:"unbegun,omitempty"` // no step is known to have been made since training began
	Committed  time.Time        `json:"committed"`         // the plan in force, by the log's clock
	Stopped    time.Time        `json:"stopped"`           // its training, by the log's clock; zero: it goes on
	Paused     bool             `json:"paused"`            // a step was abandoned: only a new plan lets trainers go on
	Abandoned  uint64           `json:"abandoned"`         // generation of the last plan for which all abandoned their steps
	Recall     recall           `json:"recall,omitzero"`
}

// rememberedLeavers is for how many generations a node that left is remembered: so many committed plans may wait for
// their steps.
const rememberedLeavers = 4

// commit writes the plan of the negotiation under way and makes it the plan in force.
func (m *Machine) commit() {
	under := m.state.Negotiation
	if m.state.Unbegun = under.StopStep == 0 && (m.isFirst() || m.state.Unbegun); under.Opening.Begins {
		m.state.Data, m.state.Reset = protocol.Data{}, nil
		// Scripts were started again since, and may be mended.
		m.state.Poison = poison{Holds: m.state.Poison.Holds, Skipped: m.state.Poison.Skipped}
	}
	plan := m.finalPlan()
	committed := m.speaker.Say(m.cause, events.PlanCommitted, strconv.FormatUint(plan.Generation, 10), plan)
	digest := events.Digest(committed.Data)
	lost, atMost := under.lostSteps()
	// The fenced fact goes first: an instance that lost its lease is refused there and never reaches the plan.
	m.say(events.Committed, under.ID, &events.Commitment{
		Negotiation: under.ID, Generation: plan.Generation, PlanDigest: digest, LostSteps: lost, AtMost: atMost,
	})
	m.said = append(m.said, committed)
	maps.DeleteFunc(m.state.Leavers,
		func(_ string, left leaver) bool { return left.Generation+rememberedLeavers < plan.Generation })
	for _, member := range under.Opening.Members {
		if joiner := m.state.Joiners[member.Node]; joiner != nil {
			delete(m.state.Joiners, member.Node)
			m.state.Members[member.Node], joiner.Since, joiner.Lifted, joiner.Trained, joiner.Bid = joiner, m.cause.Logged, nil, nil, ""
		}
		if leaves(under.Opening.Changes, member.Node) {
			m.state.Leavers[member.Node] = leaver{member.Incarnation, plan.Generation}
			delete(m.state.Members, member.Node)
			delete(m.state.Deadlines, member.Node)
			delete(m.state.Paces, member.Node)
			delete(m.state.Pauses, member.Node)
			m.forgetLinks(member.Node)
			m.state.Costs.Leave(member.Node)
		}
	}
	m.state.Pending = slices.DeleteFunc(m.state.Pending, func(change events.Change) bool {
		return slices.Contains(under.Opening.Changes, change)
	})
	m.state.History = m.state.History.From(m.state.PlanDigest, plan.ResumeStep)
	if plan.Parent != m.state.PlanDigest && m.isCertain(m.state.Recall.Floor) { // the parent, which nobody could tell any more
		m.state.History = m.state.History.From(plan.Parent, plan.ResumeStep)
	}
	m.state.Plan, m.state.PlanDigest, m.state.Message, m.state.Negotiation = plan, digest, under.Message, nil
	m.state.Data = m.state.Data.From(plan.ResumeStep, plan.Data.ConsumedSamples, plan.Data.GlobalBatch)
	if under.Opening.Abandon {
		m.state.Abandoned = plan.Generation
	}
	m.state.Paused, m.state.Ask, m.state.Deferred, m.state.Together, m.state.Tellers = false, false, false, 0, nil
	m.state.Hold.InARow, m.state.Unanswered, m.state.Renewals, m.state.Reasked = 0, 0, 0, 0
	m.state.WentBack = under.Back != nil || under.Opening.Begins
	m.state.Committed, m.state.Stopped, m.state.Lacking = m.cause.Logged, time.Time{}, time.Time{}
	m.state.Breaks.Dispute, m.state.Recall = dispute{}, recall{}
	m.state.Prices.committed()
	clear(m.state.Blamed)
	m.state.Doubts, m.state.Finals, m.state.Stop = nil, nil, nil
	m.state.Ended, m.state.EndTold = time.Time{}, time.Time{}
	clear(m.state.Busy)
	clear(m.state.Measured)
	clear(m.state.Gone)
	clear(m.state.Blank)
	clear(m.state.Fallen)
	m.state.readAgain()
	m.state.Bids, m.state.Alone = nil, nil
	m.agenda.opens = true
}

// finalPlan fills in what only the negotiator knows.
func (m *Machine) finalPlan() *events.Plan {
	under := m.state.Negotiation
	plan := *under.Plan
	plan.Cluster, plan.Generation, plan.Parent = m.settings.Cluster, under.Opening.Generation, m.parentOf(under.Opening.Generation)
	plan.Nodes = m.nodesOf(under)
	plan.Relays = m.state.relays(plan.Nodes)
	plan.ResumeStep, plan.Snapshot = under.StopStep, under.Snapshot.Plan
	plan.Data.ConsumedSamples = m.state.Data.Position(plan.ResumeStep, plan.Data.GlobalBatch)
	if plan.Snapshot != "" { // which may be of a cluster whose steps nobody here remembers
		plan.Data.ConsumedSamples = under.Snapshot.ConsumedSamples
	}
	m.passOver(&plan)
	plan.WarmUp = m.warmUp(&plan)
	return &plan
}

// warmUp returns how the learning rate gets from where it is to the plan's scale. A warm-up that is under way to the
// same scale goes on.
func (m *Machine) warmUp(plan *events.Plan) *events.WarmUp {
	before, rule := m.state.Plan, m.state.Job.BatchRule
	switch {
	case m.isFirst() || rule == nil || rule.WarmUpSteps == 0:
		return nil
	case before.LearningRateScale != plan.LearningRateScale:
		from := before.ScaleAt(plan.ResumeStep)
		return &events.WarmUp{FromScale: from, FirstStep: plan.ResumeStep, Steps: rule.WarmUpSteps}
	case before.ScaleAt(plan.ResumeStep) == plan.ScaleAt(plan.ResumeStep):
		return nil
	}
	return before.WarmUp
}

// nodesOf returns the members after the negotiation: those it opened with, less who leaves. A node that asked to join
// since is not among them; its change is still pending.
func (m *Machine) nodesOf(under *negotiation) []events.Member {
	var nodes []events.Member
	for _, member := range under.Opening.Members {
		if known := m.state.known(member.Node); known != nil && !leaves(under.Opening.Changes, member.Node) {
			nodes = append(nodes, member)
		}
	}
	return nodes
}
