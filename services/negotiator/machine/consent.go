package machine

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

// consenting is what members said that they hold.
type consenting struct {
	Consents map[string]events.Consent `json:"consents"`
	Claims   claims                    `json:"claims"`             // of those whose word needs proof
	Older    map[uint64]claims         `json:"older,omitempty"`    // by generation: of those who trained under an older plan
	Outdated bool                      `json:"outdated,omitempty"` // other changes came since the opening
	measured int                       // links, the first ones, whose ends have consented; looked up anew after a restart
}

// open opens a negotiation of changes. After one that stops training no plan follows.
func (m *Machine) open(changes []events.Change, stop bool) {
	m.agenda.lack = nil
	m.state.Hold.Active, m.state.Hold.Older, m.state.Hold.Seconds, m.state.Hold.Awaits = false, false, 0, nil
	m.state.Paused = m.mustPause(changes)
	if m.state.Paused && m.state.Stopped.IsZero() {
		m.state.Stopped = m.cause.Logged
	}
	m.raiseFloor()
	generation := m.known() + 1
	under := &negotiation{
		ID:    nameOf(generation, m.cause),
		Phase: protocol.Consenting, Trace: m.cause.Traceparent,
		consenting: consenting{Consents: map[string]events.Consent{}, Claims: claims{}},
		promising:  promising{Promises: map[string]uint64{}},
	}
	under.Opening = events.Opening{
		Negotiation: under.ID, Generation: generation, Changes: changes,
		Members: membersOf(m.state.participants(changes)), Abandon: m.state.Paused, Connect: m.linksToOpen(changes), Stop: stop,
		Begins: m.mayBegin(),
	}
	under.Opening.Recalls = m.recalls(under.Opening.Members)
	under.Opening.Digests = m.digesting(&under.Opening)
	asks := m.heedsSnapshots() && (m.isFirst() || m.state.Ask)
	under.Opening.Snapshots = asks && len(under.Opening.Recalls) == 0 && m.readers(changes)
	m.state.Negotiation = under
	m.say(events.NegotiationOpened, under.ID, &under.Opening)
}

// nameOf names a negotiation by what brought it about and when that was stored. A request that is said again after half an hour has its old
// id, and members answer no negotiation that is over (seed 7042 of the simulator).
func nameOf(generation uint64, cause events.Event) string {
	digest := events.Digest(fmt.Appendf(nil, "%s %s %d", cause.Source, cause.ID, cause.Logged.UnixNano()))
	return fmt.Sprintf("g%d-%.12s", generation, strings.TrimPrefix(digest, "sha256:"))
}

// mayAskPlanner reports whether the planner is to be asked now. While the members still consent it is: at once where all stand still, and
// where no link is measured that the plan might hang on; else once those have consented who measure.
func (m *Machine) mayAskPlanner() bool {
	under := m.state.Negotiation
	switch {
	case under == nil || under.Asked:
		return false
	case under.Phase != protocol.Consenting:
		return under.Phase == protocol.Planning
	case under.Outdated || under.Opening.Stop || len(under.Opening.Recalls) > 0:
		return false
	}
	return under.Opening.Abandon || !under.measures()
}

// measures reports whether an end of a link that is to be measured has not consented yet.
func (n *negotiation) measures() bool {
	for ; n.measured < len(n.Opening.Connect); n.measured++ {
		pair := n.Opening.Connect[n.measured]
		_, a := n.Consents[pair.A]
		_, b := n.Consents[pair.B]
		if !a || !b {
			return true
		}
	}
	return false
}

// callBack has those who are on their way out ask for a place again, and claim what they hold: nobody is left to go on
// without them. Those who have left do not hear it.
func (m *Machine) callBack() {
	for _, node := range slices.Sorted(maps.Keys(m.state.Leavers)) {
		refusal := refusalOf(events.RefusedMembership, node, "no node is left that goes on without it")
		refusal.Incarnation = m.state.Leavers[node].Incarnation
		m.refuse(refusal)
	}
	clear(m.state.Leavers)
}

// mustPause reports whether the step under way cannot end: a node with a place is gone, a link in use broke, or a step
// was abandoned already. Before the first plan everybody is paused anyway.
func (m *Machine) mustPause(changes []events.Change) bool {
	if m.isFirst() || m.state.Paused {
		return true
	}
	return slices.ContainsFunc(changes, func(change events.Change) bool {
		_, placed := m.state.Plan.Holds(change.Node)
		return urgent(change) && placed
	})
}

// linksToOpen returns the links that must be opened and measured: those asked for, and those of joiners to some of the
// others.
func (m *Machine) linksToOpen(changes []events.Change) []events.Pair {
	if m.isFirst() {
		return nil // the monitor measures the first links while training runs
	}
	var there []protocol.Peer
	for _, member := range m.state.after(changes) {
		if m.state.Members[member.Node] == member {
			there = append(there, peerOf(member))
		}
	}
	var pairs []events.Pair
	for _, change := range changes {
		switch change.Kind {
		case events.ChangeConnect, events.ChangeRestored:
			pairs = append(pairs, events.PairOf(change.Node, change.Peer))
		case events.ChangeJoin:
			joiner, linked := m.state.Joiners[change.Node], slices.Clone(there)
			linked = slices.DeleteFunc(linked, func(peer protocol.Peer) bool { return m.state.apart(change.Node, peer.Node) })
			for _, partner := range protocol.Partners(peerOf(joiner), linked) {
				pairs = append(pairs, events.PairOf(change.Node, partner))
			}
		}
	}
	return pairs
}

func peerOf(member *member) protocol.Peer { return protocol.Peer{Node: member.Node, Site: member.Site} }

func (m *Machine) consented(consent events.Consent) {
	under := m.under(consent.Negotiation, protocol.Consenting)
	if under == nil || !under.takesPart(consent.Node, consent.Incarnation) {
		return
	}
	if len(under.Opening.Recalls) > 0 {
		m.recalled(consent)
		return
	}
	if !consent.Accepted {
		m.objected(consent)
		return
	}
	for _, measured := range consent.Measurements {
		m.noteLink(measured)
		m.state.Untold[linkKey(measured.From, measured.To)] = true
	}
	if !m.trusts(consent.Node, consent.Incarnation) {
		consent.Step = newest(m.noteClaims(consent)) // it has no plan and tells no step
	} else if slices.Contains(under.Opening.Digests, consent.Node) {
		m.noteClaims(consent)
	}
	if _, was := m.before(consent.Node); was {
		m.begun(consent.Step)
	}
	consent.Measurements, consent.Claims = nil, nil // they are with the links and with the claims of all
	under.Consents[consent.Node] = consent
	delete(m.state.Busy, busyKey(protocol.Consenting, consent.Node))
	m.answered(consent.Node)
}

// tellMeasured tells the monitor what members measured, once. It need not hear each consent for that, of which there are
// 1,000 to a change of 1,000 nodes, and nearly all tell of no link.
func (m *Machine) tellMeasured() {
	told := &events.Measured{Negotiation: m.state.Negotiation.ID}
	for _, key := range slices.Sorted(maps.Keys(m.state.Untold)) {
		if link, known := m.state.Links[key]; known {
			told.Measurements = append(told.Measurements, link.Measurement)
		}
	}
	clear(m.state.Untold)
	if len(told.Measurements) == 0 {
		return
	}
	m.say(events.LinksMeasured, m.state.Negotiation.ID, told)
}

// objected hears that a member does not accept a negotiation. The changes that it objects to are refused, or else all
// that can be. A member that objects to what nobody can refuse is given up: others must not wait for it.
func (m *Machine) objected(consent events.Consent) {
	under, reason := m.state.Negotiation, consent.Node+" does not consent: "+consent.Reason
	if under.Opening.Stop {
		m.ends(reason)
		m.agenda.calledOff = reason
		return
	}
	meant := objectedBy(consent, under.Opening.Changes)
	asked := slices.DeleteFunc(slices.Clone(under.Opening.Changes),
		func(change events.Change) bool { return !objectionable[change.Kind] })
	if slices.ContainsFunc(asked, meant) {
		asked = slices.DeleteFunc(asked, func(change events.Change) bool { return !meant(change) })
	}
	if len(asked) == 0 {
		spare, last := protocol.Spare(m.state.placed(), []string{consent.Node})
		if len(last) > 0 {
			m.ends(reason)
			m.stuck(reason, last...)
			return
		}
		m.giveUp(spare, "does not consent to what cannot be refused: "+consent.Reason, false)
		return
	}
	m.ends(reason)
	m.refusing("not accepted: "+reason, func(change events.Change) bool { return slices.Contains(asked, change) })
}

// objectedBy tells which changes a member objects to: the joins that it names, else what it takes part in itself. A member that joins
// itself refuses nobody, and is refused.
func objectedBy(consent events.Consent, changes []events.Change) func(events.Change) bool {
	joins := slices.ContainsFunc(changes, func(change events.Change) bool {
		return change.Kind == events.ChangeJoin && change.Node == consent.Node
	})
	if len(consent.Refuses) > 0 && !joins {
		return func(change events.Change) bool {
			return change.Kind == events.ChangeJoin && slices.Contains(consent.Refuses, change.Node)
		}
	}
	return func(change events.Change) bool { return change.Node == consent.Node || change.Peer == consent.Node }
}

// objectionable are the changes that need consent.
var objectionable = map[string]bool{
	events.ChangeConnect: true, events.ChangeRestored: true, events.ChangeJoin: true, events.ChangeDisconnect: true,
	events.ChangeMeasured: true,
}
