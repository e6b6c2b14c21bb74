package machine

import (
	"strings"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

// phase returns how far the negotiation under way has come, as its last fact tells; empty where there is none.
func (w *world) phase() protocol.Phase {
	under, phase := w.opened, protocol.Phase("")
	if under == nil {
		return phase
	}
	for _, event := range w.said {
		next, tells := map[events.Kind]protocol.Phase{
			events.NegotiationOpened: protocol.Consenting, events.PlanRequested: protocol.Planning,
			events.RestorationAsked: protocol.Restoring, events.PreCopyStarted: protocol.PreCopying,
			events.Prepared: protocol.Promising, events.Scheduled: protocol.Transferring,
		}[event.Kind]
		if tells && event.Subject == under.Negotiation {
			phase = next
		}
	}
	return phase
}

// trains reports whether the plan in force names this very process.
func (w *world) trains(member events.Member) bool {
	if w.plan == nil {
		return false
	}
	named, there := w.plan.Member(member.Node)
	return there && named.Incarnation == member.Incarnation
}

// held returns for how long and for whom the cluster said last that it holds; nil where a negotiation was opened since.
func (w *world) held() *events.Hold {
	var held *events.Hold
	for _, event := range w.said {
		switch event.Kind {
		case events.NegotiationOpened:
			held = nil
		case events.ClusterHeld:
			hold := must[events.Hold](w.t, event)
			held = &hold
		}
	}
	return held
}

// last returns the last fact of a kind.
func (w *world) last(kind events.Kind) (last events.Event) {
	for _, event := range w.said {
		if event.Kind == kind {
			last = event
		}
	}
	return last
}

// refusals returns what was refused to a node, in order.
func (w *world) refusals(node string) []events.Refusal {
	var refusals []events.Refusal
	for _, event := range w.said {
		if event.Kind == events.MembershipRefused && event.Subject == node {
			refusals = append(refusals, must[events.Refusal](w.t, event))
		}
	}
	return refusals
}

// plans returns the committed plans in order.
func (w *world) plans() []events.Plan {
	var plans []events.Plan
	for _, event := range w.said {
		if event.Kind == events.PlanCommitted {
			plans = append(plans, must[events.Plan](w.t, event))
		}
	}
	return plans
}

// requests returns what the planner was asked, in order.
func (w *world) requests() []events.PlanRequest {
	var requests []events.PlanRequest
	for _, event := range w.said {
		if event.Kind == events.PlanRequested {
			requests = append(requests, must[events.PlanRequest](w.t, event))
		}
	}
	return requests
}

func (w *world) nodes() string {
	plans := w.plans()
	if len(plans) == 0 {
		return ""
	}
	var nodes []string
	for _, member := range plans[len(plans)-1].Nodes {
		nodes = append(nodes, member.Node)
	}
	return strings.Join(nodes, " ")
}

func (w *world) saidKinds() []events.Kind {
	var kinds []events.Kind
	for _, event := range w.said {
		kinds = append(kinds, event.Kind)
	}
	return kinds
}
