package agent

import (
	"context"
	"log/slog"
	"slices"

	"github.com/reknit/reknit/events"
)

// view is what the node knows of the cluster, from what it heard in the log's order.
type view struct {
	incarnation string
	leaving     bool
	refused     string                 // why the node may not join
	again       bool                   // the node was given up and is to ask again
	plan        *events.Plan           // adopted
	digest      string                 // of the adopted plan
	next        []committedPlan        // not yet adopted, in order
	switched    bool                   // a plan was adopted since the last orders
	opening     *heard[events.Opening] // the negotiation under way
	prepared    *heard[events.Preparation]
	schedule    *heard[events.Schedule]
	consented   bool
	connected   bool                        // the links of the opening are being opened, or are open
	promise     *uint64                     // completed steps not to be passed before the negotiation ends
	moved       bool                        // what the schedule asks of this node is done
	hold        uint64                      // nothing is trained before the plan of this generation; zero for no hold
	offers      []events.Offer              // manifests of the negotiation under way
	done        uint64                      // completed steps, as of the last Boundary
	cancelStep  context.CancelFunc          // of the step under way
	cancelMove  context.CancelFunc          // of the transfers under way
	start       *heard[events.PreCopyStart] // layers are to move while training goes on
	following   *following                  // and do
}

// heard is a payload with the event it came in, which is the cause of the answer.
type heard[T any] struct {
	event   events.Event
	payload T
}

// committedPlan is a plan and the digest that the next one names as its parent.
type committedPlan struct {
	*events.Plan
	digest string
}

// newest returns the newest committed plan heard of; nil before the first.
func (v *view) newest() *events.Plan {
	if last := len(v.next) - 1; last >= 0 {
		return v.next[last].Plan
	}
	return v.plan
}

// generation returns that of the adopted plan; zero before the first.
func (v *view) generation() uint64 {
	if v.plan == nil {
		return 0
	}
	return v.plan.Generation
}

// known returns the generation of the newest committed plan heard of.
func (v *view) known() uint64 {
	if newest := v.newest(); newest != nil {
		return newest.Generation
	}
	return 0
}

// hear takes one event of the log into the view and answers what needs no state of the trainer. The two streams have
// no common order: what overtook the plan it builds on is kept until that plan is here, and all behind it.
func (s *Session) hear(event events.Event) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	defer s.wake()
	if event.Kind != events.PlanCommitted && (len(s.overtaking) > 0 || s.overtakes(event)) {
		s.overtaking = append(s.overtaking, event)
		return
	}
	s.take(event)
	if event.Kind == events.PlanCommitted {
		for len(s.overtaking) > 0 && !s.overtakes(s.overtaking[0]) {
			next := s.overtaking[0]
			s.overtaking = s.overtaking[1:]
			s.take(next)
		}
	}
}

// overtakes reports whether an event opens a negotiation that builds on a plan not heard of yet. To a newcomer no plan
// is missing: the first one it hears of is its own.
func (s *Session) overtakes(event events.Event) bool {
	if event.Kind != events.NegotiationOpened || s.view.known() == 0 {
		return false
	}
	opening, err := events.Open[events.Opening](event)
	return err == nil && opening.Generation > s.view.known()+1
}

func (s *Session) take(event events.Event) {
	take, ok := takers[event.Kind]
	if !ok {
		return
	}
	slog.Debug("heard", "node", s.config.Node, "event", event.Kind, "subject", event.Subject, "sequence", event.Sequence)
	if err := take(s, event); err != nil {
		slog.Error("event not understood", "kind", event.Kind, "id", event.ID, "error", err)
	}
	s.answer()
}

// takers says how each kind of event changes the view; all are called with the mutex held.
var takers = map[events.Kind]func(*Session, events.Event) error{
	events.NegotiationOpened: taker((*Session).opened),
	events.PreCopyStarted:    taker((*Session).started),
	events.Prepared:          taker((*Session).preparedFor),
	events.Scheduled:         taker((*Session).scheduled),
	events.Aborted:           taker((*Session).aborted),
	events.PlanCommitted:     taker((*Session).committed),
	events.ShardOffered:      taker((*Session).offered),
	events.MembershipRefused: taker((*Session).refusedBy),
}

func taker[T any, P interface {
	*T
	events.Payload
}](take func(*Session, heard[T])) func(*Session, events.Event) error {
	return func(s *Session, event events.Event) error {
		payload, err := events.Open[T, P](event)
		if err == nil {
			take(s, heard[T]{event, payload})
		}
		return err
	}
}

func (s *Session) opened(opening heard[events.Opening]) {
	v := &s.view
	if !v.takesPart(opening.payload.Members, s.config.Node) {
		v.promise = nil // it was to a negotiation that this one replaces
		v.noticeLeftOut(s.config.Node)
		return
	}
	v.endNegotiation()
	v.opening, v.promise = &opening, nil
	v.leaving = v.leaving || leaves(opening.payload.Changes, s.config.Node)
	v.consented, v.connected, v.moved = false, false, false
	if opening.payload.Abandon {
		v.abandon(opening.payload.Generation)
	}
}

// leaves reports whether a node's leave is among the changes; it may be somebody else who asked for it.
func leaves(changes []events.Change, node string) bool {
	return slices.ContainsFunc(changes, func(c events.Change) bool { return c.Kind == events.ChangeLeave && c.Node == node })
}

// endNegotiation forgets the negotiation under way, and stops what it was moving.
func (v *view) endNegotiation() {
	v.opening, v.prepared, v.schedule, v.offers = nil, nil, nil, nil
	if v.cancelMove != nil {
		v.cancelMove()
	}
	if v.following != nil {
		v.following.cancel()
	}
	v.start, v.following = nil, nil
}

// noticeLeftOut stops the step of a member whose plan was replaced by one without it, and without its promise: it was
// given up, and nobody trains with it any more.
func (v *view) noticeLeftOut(node string) {
	newest := v.newest()
	if v.plan != nil && newest != v.plan && v.promise == nil && !v.takesPart(newest.Nodes, node) {
		v.abandon(newest.Generation)
	}
}

// abandon stops the step under way; nothing is trained before the plan of the given generation.
func (v *view) abandon(generation uint64) {
	v.hold = generation
	if v.cancelStep != nil {
		v.cancelStep()
	}
}

func (v *view) takesPart(members []events.Member, node string) bool {
	for _, member := range members {
		if member.Node == node && member.Incarnation == v.incarnation {
			return true
		}
	}
	return false
}

// current reports whether an event belongs to the negotiation under way.
func (v *view) current(negotiation string) bool {
	return v.opening != nil && v.opening.payload.Negotiation == negotiation
}

func (s *Session) started(start heard[events.PreCopyStart]) {
	if s.view.current(start.payload.Negotiation) && s.config.PreCopies {
		s.view.start = &start
	}
}

func (s *Session) preparedFor(preparation heard[events.Preparation]) {
	if s.view.current(preparation.payload.Negotiation) {
		s.view.prepared = &preparation
	}
}

func (s *Session) scheduled(schedule heard[events.Schedule]) {
	if s.view.current(schedule.payload.Negotiation) {
		s.view.schedule = &schedule
	}
}

// aborted frees the node from its promise. After a superseded negotiation it waits for the next opening, which
// follows at once; after an abandoned step it waits for it anyway.
func (s *Session) aborted(abortion heard[events.Abort]) {
	v := &s.view
	if !v.current(abortion.payload.Negotiation) {
		return
	}
	v.endNegotiation()
	if !abortion.payload.Superseded {
		v.promise = nil
	}
}

// committed takes a plan that is newer than any known. It ends the negotiation that made it.
func (s *Session) committed(plan heard[events.Plan]) {
	v := &s.view
	if plan.payload.Generation <= v.known() {
		return
	}
	v.next = append(v.next, committedPlan{&plan.payload, events.Digest(plan.event.Data)})
	v.noticeLeftOut(s.config.Node)
	if v.opening != nil && v.opening.payload.Generation <= plan.payload.Generation {
		v.endNegotiation()
	}
}

// refusedBy hears that a request was refused, or that the membership is over. A node that was given up while it lived
// leaves its step and asks again.
func (s *Session) refusedBy(refusal heard[events.Refusal]) {
	v := &s.view
	mine := refusal.payload.Incarnation == v.incarnation
	switch {
	case mine && refusal.payload.Refused == events.ChangeJoin:
		v.refused = refusal.payload.Reason
	case mine && refusal.payload.Refused == events.RefusedMembership:
		slog.Warn("given up by the cluster; joining again", "node", s.config.Node, "reason", refusal.payload.Reason)
		v.abandon(v.known() + 1)
		v.again = true
	default:
		slog.Warn("request refused", "node", s.config.Node, "request", refusal.payload.Refused, "reason", refusal.payload.Reason)
	}
}
