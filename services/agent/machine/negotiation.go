package machine

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/reknit/reknit/events"
)

const (
	mostEnded = 32 // negotiations that are over, of which a late or repeated opening has no effect

	// promiseAhead is how many steps after the last completed one a node promises to stop: one more than the step under
	// way, so that a plan that moves nothing is there in time and stops nobody.
	promiseAhead = 2
)

// phase is how far this node's part of a negotiation is.
type phase int

const (
	opened     phase = iota // its consent waits for the links to be measured, or for what the trainer's state holds
	consented               // it waits for a plan
	preCopying              // units move while training goes on
	promised                // it stops at a step
	scheduled               // the step at which all stop is known
	moving                  // all are paused there, units move
	moved                   // what it was to take is imported
	broken                  // it cannot do its part, and said so
)

var phaseNames = [...]string{
	"opened", "consented", "pre-copying", "promised", "scheduled", "moving", "moved", "broken",
}

func (p phase) String() string { return phaseNames[p] }

// negotiation is this node's part of one. Each event that was heard in it is the cause of what is said because of that
// event.
type negotiation struct {
	phase    phase
	opening  heard[events.Opening]
	start    *heard[events.PreCopyStart] // nil: no units are to move while training goes on
	schedule *heard[events.Schedule]     // nil: the stop step is not known
	last     lastSnapshot
	moves    bool // units move in it: Close ends that
	measure  Task
	delayed  bool // it said that its consent comes later
	preCopy  Task
	offers   map[int][]events.Offer // by unit that this node takes, at most one of each source
	exchange exchange
}

// heard is a payload with the event it came in.
type heard[T any] struct {
	event   events.Event
	payload T
}

// opened takes part in the negotiation of the generation after the newest plan. Any other opening is late.
func (m *Machine) opened(event events.Event, opening events.Opening) {
	switch {
	case m.late(opening) || m.under(opening.Negotiation) || m.membership == givenUp || m.membership == outside:
		return
	case !m.named(opening.Members):
		if m.another(opening.Members) {
			m.do(Look{})
		}
		m.endNegotiation()
		if opening.Abandon || !m.awaitedToItsStep() {
			m.promise = nil // it was made in a negotiation that this one replaces
			m.noticeLeftOut()
		}
		return
	}
	busy := m.busy()
	m.endNegotiation()
	m.promise = nil
	m.newest.learn(opening)
	m.negotiation = &negotiation{
		opening: heard[events.Opening]{event, opening}, offers: map[int][]events.Offer{},
	}
	m.hasToLeave(opening.Changes)
	if len(opening.Recalls) > 0 {
		m.recall(opening)
		return
	}
	if opening.Abandon {
		m.abandon(opening.Generation)
		m.vouch()
		if busy == "" && m.digests(opening) {
			busy = m.digesting()
		}
	}
	objection, refuses := m.objection(event, opening)
	if opening.Stop && !m.settings.Job.Unchanged() && len(m.lasting()) == 0 {
		objection = "its snapshots do not outlive its process: expected REKNIT_SNAPSHOT_FOLDER or REKNIT_SNAPSHOT_BUCKET"
	} else if opening.Stop && m.diverged > 0 {
		objection = m.stopsDiverged()
	}
	switch {
	case objection != "":
		m.consent(events.Consent{Reason: objection, Refuses: refuses})
	case opening.Abandon:
		m.sayDelayed(busy)
	default:
		m.measureLinks()
	}
}

// late reports whether an opening is over. It is not if nodes alone told of the plan that it comes before. To a node that a plan leaves
// out no later plan makes it so: the plan may have overtaken the opening, which tells that the others do not train on to the leaver's step.
func (m *Machine) late(opening events.Opening) bool {
	heard := m.newest.generation
	if m.leftOut() && !m.named(opening.Members) {
		heard = m.ahead().Generation
	}
	return m.newest.known && !m.newest.told && opening.Generation <= heard || slices.Contains(m.ended, opening.Negotiation)
}

// busy says what the trainer's state is at that may take minutes; empty for nothing.
func (m *Machine) busy() string {
	switch {
	case m.asked != nil:
		return m.asked.what
	case m.negotiation != nil && m.negotiation.phase == moving:
		return "it moves units"
	case m.capturing:
		return "it gives units while it trains"
	case m.inStep() && m.slow:
		return "it gives up its step"
	}
	return ""
}

// sayDelayed tells that the consent comes later, and why.
func (m *Machine) sayDelayed(why string) {
	if why == "" || m.negotiation.delayed || m.negotiation.phase >= consented {
		return
	}
	m.negotiation.delayed = true
	under := m.negotiation.opening
	delay := &events.Delay{
		Negotiation: under.payload.Negotiation, Node: m.settings.Node, Incarnation: m.incarnation, Reason: why,
	}
	if m.inStep() {
		delay.Seconds = m.patience().Seconds()
	}
	m.say(under.event, events.ConsentDelayed, m.settings.Node, delay)
}

// under reports whether a negotiation is the one under way.
func (m *Machine) under(id string) bool {
	return m.negotiation != nil && m.negotiation.opening.payload.Negotiation == id
}

// leaves reports whether somebody asked that a node leaves.
func leaves(changes []events.Change, node string) bool {
	return slices.ContainsFunc(changes, func(change events.Change) bool {
		return change.Kind == events.ChangeLeave && change.Node == node
	})
}

// abandon has the trainer give up the step under way. Nothing is trained before the plan of the given generation.
func (m *Machine) abandon(generation uint64) {
	m.awaited, m.stuck, m.abandoned = generation, false, true
	if m.trainer == training {
		m.trainer = abandoning
		m.do(Abandon{Within: m.patience()})
	}
}

// measureLinks opens the links that the negotiation asks of this node, before it consents.
func (m *Machine) measureLinks() {
	under := m.negotiation
	opening := under.opening.payload
	var peers []events.Member
	for _, pair := range opening.Connect {
		peer, ours := otherEnd(pair, m.settings.Node)
		if !ours {
			continue
		}
		member, known := events.MemberOf(opening.Members, peer)
		if !known {
			member.Node = peer
		}
		peers = append(peers, member)
	}
	if len(peers) == 0 {
		m.consent(events.Consent{Accepted: true, Holdings: m.current()})
		return
	}
	under.measure = m.task()
	m.do(Measure{under.measure, peers})
}

func otherEnd(pair events.Pair, node string) (peer string, ours bool) {
	switch node {
	case pair.A:
		return pair.B, true
	case pair.B:
		return pair.A, true
	}
	return "", false
}

// measured consents, unless a link that was asked for could not be opened.
func (m *Machine) measured(result Measured) {
	under := m.negotiation
	if under == nil || under.phase != opened || under.measure != result.Task {
		return
	}
	consent := events.Consent{Accepted: true, Holdings: m.current(), Measurements: slices.Clone(result.Measurements)}
	slices.SortFunc(consent.Measurements, func(a, b events.Measurement) int { return strings.Compare(a.To, b.To) })
	for _, peer := range slices.Sorted(maps.Keys(result.Unreached)) {
		if linkAsked(under.opening.payload.Changes, events.PairOf(m.settings.Node, peer)) {
			consent.Accepted, consent.Reason = false, fmt.Sprintf("link to %s: %s", peer, result.Unreached[peer])
		}
	}
	m.consent(consent)
}

// linkAsked reports whether a pair is a link that somebody asked for, rather than one of a joiner's, of which some
// may be missing.
func linkAsked(changes []events.Change, pair events.Pair) bool {
	return slices.ContainsFunc(changes, func(change events.Change) bool {
		asks := change.Kind == events.ChangeConnect || change.Kind == events.ChangeRestored
		return asks && events.PairOf(change.Node, change.Peer) == pair
	})
}

// current returns the units that the node trains under the newest plan it knows, as holdings of whatever step it
// stops at.
func (m *Machine) current() []events.Holding {
	plan := m.ahead()
	if plan == nil || !m.named(plan.Nodes) {
		return nil
	}
	var holdings []events.Holding
	for _, units := range plan.UnitsOf(m.settings.Node) {
		holdings = append(holdings, events.Holding{Units: units, Steps: []uint64{m.step()}, Current: true})
	}
	return holdings
}

// tell answers an opening that abandons the step, at the boundary: it asks the trainer's state what it holds. A
// newcomer could make step 0, but a cluster that has a plan is past it; what it trained before it was given up it
// may claim.
func (m *Machine) tell() {
	opening := m.negotiation.opening.payload
	snapshots, told := m.readsSnapshots(opening), maps.Clone(m.snapshots.complete)
	switch {
	case m.digests(opening):
		m.ask(Tell{m.task(), true, snapshots, told}, m.digesting())
	case m.plan != nil || begins(opening):
		m.ask(Tell{m.task(), false, snapshots, told}, "it tells what it holds")
	case snapshots:
		m.ask(Tell{m.task(), false, true, told}, "it lists its snapshots")
	default:
		m.consent(events.Consent{Accepted: true})
	}
}

// begins reports whether training begins at its first step, which every newcomer can make.
func begins(opening events.Opening) bool { return opening.Generation == 1 || opening.Begins }

// mayClaim reports whether the trainer's state is of an incarnation that was given up.
func (m *Machine) mayClaim() bool { return m.plan == nil && m.claimable > 0 }

// digests reports whether the trainer's state is to tell digests: of what it claims, or of what it alone holds.
func (m *Machine) digests(opening events.Opening) bool {
	return !begins(opening) && (m.mayClaim() || m.plan != nil && slices.Contains(opening.Digests, m.settings.Node))
}

func (m *Machine) digesting() string {
	if m.plan != nil {
		return "it digests what it holds"
	}
	return "it digests what it claims"
}

// told consents with what the trainer's state holds, or claims.
func (m *Machine) told(result Told) {
	asked, current := m.answered(result.Task)
	if !current || !m.under(asked.negotiation) {
		return
	}
	consent := events.Consent{Accepted: true, Snapshots: result.Snapshots}
	switch {
	case m.plan != nil || begins(m.negotiation.opening.payload):
		consent.Holdings = m.countedOf(result.Holdings)
		if m.plan != nil {
			m.claim(&consent, result.Claims, m.plan.plan.Generation)
		}
	case m.mayClaim():
		m.claim(&consent, result.Claims, m.claimable)
	}
	m.consent(consent)
}

// claim adds what counts of claims that were trained under the plan of a generation.
func (m *Machine) claim(consent *events.Consent, claims []events.Claim, trained uint64) {
	consent.Claims = slices.DeleteFunc(claims, func(claim events.Claim) bool { return !m.countsNow(claim.Unit, claim.Step) })
	if len(consent.Claims) > 0 {
		consent.Trained = trained
	}
}

func (m *Machine) consent(consent events.Consent) {
	under := m.negotiation
	under.phase = max(under.phase, consented)
	consent.Negotiation, consent.Node = under.opening.payload.Negotiation, m.settings.Node
	consent.Incarnation, consent.Step = m.incarnation, m.step()
	if under.opening.payload.Stop && consent.Accepted {
		consent.Tiers = m.lasting()
	}
	m.say(under.opening.event, events.Consented, m.settings.Node, &consent)
}

// prepared promises a step to stop at.
func (m *Machine) prepared(event events.Event, preparation events.Preparation) {
	if !m.under(preparation.Negotiation) || m.negotiation.phase >= promised {
		return
	}
	stop := m.stopStep()
	m.promise, m.negotiation.phase = &stop, promised
	m.say(event, events.Promised, m.settings.Node,
		&events.Promise{Negotiation: preparation.Negotiation, Node: m.settings.Node, StopStep: stop})
}

// stopStep returns the step to promise: beyond the one under way, not before the newest plan takes over, and not
// beyond the end of training.
func (m *Machine) stopStep() uint64 {
	stop := m.step()
	if !m.idle() {
		stop += promiseAhead
	}
	if plan := m.ahead(); plan != nil {
		stop = max(stop, plan.ResumeStep)
	}
	if total := m.settings.Job.Steps; total > 0 {
		stop = min(stop, total)
	}
	return stop
}

// aborted frees the node from its promise, unless another negotiation follows at once. A step that was abandoned
// stays so.
func (m *Machine) aborted(_ events.Event, abort events.Abort) {
	if !m.under(abort.Negotiation) {
		return
	}
	m.endNegotiation()
	if !abort.Superseded {
		m.promise = nil
	}
}

// endNegotiation forgets the negotiation under way, and ends what it was moving.
func (m *Machine) endNegotiation() {
	if m.negotiation == nil {
		return
	}
	id := m.negotiation.opening.payload.Negotiation
	if m.negotiation.moves {
		m.do(Close{id})
	}
	m.ended = append(m.ended, id)
	m.ended = m.ended[max(0, len(m.ended)-mostEnded):]
	m.negotiation = nil
}
