package machine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

// roster is who takes part, asked to, or did.
type roster struct {
	Members   map[string]*member   `json:"members"`          // active nodes
	Joiners   map[string]*member   `json:"joiners"`          // asked to join, not yet in a committed plan
	Leavers   map[string]leaver    `json:"leavers"`          // that the last plans do without
	Deadlines map[string]time.Time `json:"deadlines"`        // of nodes that want to leave
	Failed    map[string]failures  `json:"failed"`           // by node: lately
	Starts    map[string]starts    `json:"starts"`           // that failed, by crowd
	Missed    map[string]string    `json:"missed,omitempty"` // incarnations lost from a place that may live, by node
	Gone      map[string]string    `json:"gone"`             // incarnations of Plan, or that told of one, which have nothing, by node
	Blank     map[string]string    `json:"blank,omitempty"`  // incarnations of Plan that made no step, as later ones of the node told
	Fallen    map[string]uint64    `json:"fallen"`           // steps that nodes had completed which were lost since the last commit
}

func (m *Machine) join(join events.Join) {
	m.inherit(join)
	if reason := m.hasStopped(join); reason != "" {
		refusal := refusalOf(events.ChangeJoin, join.Node, reason)
		refusal.Incarnation, refusal.Stopped = join.Incarnation, true
		m.refuse(refusal)
		return
	}
	if reason := m.givenUp(join.MemoryBytes); reason != "" {
		refusal := refusalOf(events.ChangeJoin, join.Node, reason)
		refusal.Incarnation, refusal.OtherJob = join.Incarnation, true
		m.refuse(refusal)
		return
	}
	key, other, full := m.bidOf(join)
	if other != "" {
		refusal := refusalOf(events.ChangeJoin, join.Node, other)
		refusal.Incarnation, refusal.OtherJob = join.Incarnation, true
		m.refuse(refusal)
		return
	}
	if reason := cmp.Or(full, m.turnsAway(join.Node), m.leavesOutTooMany(join)); reason != "" {
		refusal := refusalOf(events.ChangeJoin, join.Node, reason)
		refusal.Incarnation = join.Incarnation
		m.refuse(refusal)
		return
	}
	if m.isDecided() {
		m.takeSteps(join.Job)
	}
	urgency, anew := protocol.Patient, 0
	if m.awaits(join.Node) {
		urgency = protocol.Urgent // what it holds may be newer than the step to which all go back
	}
	if known := m.state.known(join.Node); known != nil {
		if known.Incarnation == join.Incarnation {
			return
		}
		urgency = m.concerns(join.Node) // it restarted before anybody missed it
		known.Wished = known.Wished || m.asksAnew(join.Node, m.cause.Logged)
		anew = m.timesAsked(join.Node)
		m.forget(join.Node)
	}
	lifted := m.leaveOut(join)
	m.state.Joiners[join.Node] = &member{
		Member: events.Member{
			Node: join.Node, Incarnation: join.Incarnation, Address: join.Address,
			Name: join.Name, Site: join.Site, ShardAddress: join.ShardAddress, PreCopies: join.PreCopies,
		},
		MemoryBytes: join.MemoryBytes, StateCopies: join.StateCopies, Samples: join.Samples,
		Snapshots:   join.Snapshots,
		SpeedFactor: m.usualSpeed(),
		Lifted:      lifted,
		Trained:     join.Trained,
		Asked:       m.cause.Logged,
		Anew:        anew,
		Bid:         key,
		Steps:       join.Job.Steps,
	}
	m.takeTurn(join.Node)
	change := events.Change{
		Kind: events.ChangeJoin, Node: join.Node, Cause: m.cause.ID, Institution: m.settings.Admission.Nodes[join.Node],
	}
	if urgency == protocol.Patient && !m.state.Joiners[join.Node].NotBefore.IsZero() {
		m.state.Pending = append(m.state.Pending, change) // see admit: what others negotiate meanwhile goes on
		return
	}
	m.pend(change, urgency)
}

// asksAnew reports whether a node that asks for a place has not failed before, though its request is another one: it has not answered in
// the name of the one before, and asks no more often than an agent that hears no acknowledgement of a request that was stored. So it may
// be mostAnew times in a row: each time ends the negotiation under way.
func (m *Machine) asksAnew(node string, now time.Time) bool {
	joiner := m.state.Joiners[node]
	if joiner == nil || joiner.Anew >= mostAnew || now.Sub(joiner.Asked) < asksAnewAfter {
		return false
	}
	if m.state.Negotiation == nil {
		return true
	}
	_, answered := m.state.Negotiation.Consents[node]
	return !answered
}

// asksAnewAfter is shorter than the 30 s for which an agent waits: a hub that is slow stores the one late and the next at once.
const asksAnewAfter = 20 * time.Second

// mostAnew is how many requests in a row may take the place of one before, and count as no failure.
const mostAnew = 2

// timesAsked returns how many requests a node has made in a row that had no answer; zero where it asks for no place.
func (m *Machine) timesAsked(node string) int {
	if joiner := m.state.Joiners[node]; joiner != nil {
		return joiner.Anew + 1
	}
	return 0
}

// turnsAway says why a node may not ask for a place; empty where it may. A node that has a place keeps it.
func (m *Machine) turnsAway(node string) string {
	switch reason := m.settings.Admission.Refuses(node); {
	case m.placed(node):
		return ""
	case reason != "":
		return reason
	case m.state.known(node) == nil && len(m.state.Members)+len(m.state.Joiners) >= events.MostNodes:
		return fmt.Sprintf("the cluster has %d nodes, and takes no more until some leave", events.MostNodes)
	}
	return ""
}

// isExpected reports whether all are paused until a lost node is back.
func (m *Machine) isExpected(node string) bool {
	return m.state.Hold.Active && m.state.Deferred && slices.ContainsFunc(m.state.Pending, func(change events.Change) bool {
		return change.Kind == events.ChangeFailure && change.Node == node
	})
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

func (m *Machine) leave(leave events.Leave) {
	if joiner := m.state.Joiners[leave.Node]; joiner != nil {
		joiner.Wished = true
		urgency := m.concerns(leave.Node)
		m.forget(leave.Node)
		m.negotiate(urgency)
		return
	}
	if m.state.Members[leave.Node] == nil {
		m.refuse(refusalOf(events.ChangeLeave, leave.Node, `field "node": expected an active node`))
		return
	}
	if leaves(m.state.Pending, leave.Node) {
		return
	}
	if leave.DeadlineSeconds > 0 {
		m.state.Deadlines[leave.Node] = m.cause.Logged.Add(seconds(leave.DeadlineSeconds))
	}
	urgency := protocol.Pressing
	if m.allLeaveBut(leave.Node) {
		urgency, m.state.Together = protocol.Urgent, 0 // what is under way would move state to who leaves, too
	}
	m.pend(events.Change{Kind: events.ChangeLeave, Node: leave.Node, Reason: inShort(leave.Reason)}, urgency)
}

// inShort is what openings carry of the reason of each leave. A thousand may leave at a time.
func inShort(reason string) string { return events.Shorten(reason, 256) }

func (m *Machine) nodeLost(lost events.NodeState) {
	m.state.Failures, m.state.Returns = lost.FailuresPerNodeSecond, lost.SecondsUntilReturn
	m.begun(lost.Step)
	if left, leaves := m.state.Leavers[lost.Node]; leaves && left.Incarnation == lost.Incarnation {
		m.leaverLost(lost.Node)
		return
	}
	known := m.state.known(lost.Node)
	if known == nil || known.Incarnation != lost.Incarnation {
		return // an older incarnation, or long gone
	}
	m.miss(lost)
	_, told := m.state.Recall.Told[lost.Node]
	if lost.Proven && (m.state.Plan != nil || told) && m.state.trusted(lost.Node, lost.Incarnation) {
		m.state.Gone[lost.Node] = lost.Incarnation
	}
	if lost.Step > 0 && m.state.trusted(lost.Node, lost.Incarnation) {
		m.state.Fallen[lost.Node] = lost.Step
	}
	urgency := m.concerns(lost.Node)
	m.endMembership(lost.Node, "lost: "+lost.Reason, false) // should it live, it hears so
	m.negotiate(urgency)
}

// leaverLost hears that a node died before the step at which a plan takes over that does without it. The others wait
// for it in a step of the plan before, so they must give that step up.
func (m *Machine) leaverLost(node string) {
	delete(m.state.Leavers, node)
	m.state.Paused = true
	m.pend(events.Change{Kind: events.ChangeFailure, Node: node}, protocol.Urgent)
}

// diverged gives up who holds other bytes than most. It joins again and is given them anew; what it trained since it
// went astray is in everybody's gradients. A node that is the last to hold another unit stays: it would be told to
// forget that, too.
func (m *Machine) diverged(divergence events.Divergence) {
	if divergence.Generation != m.state.generation() {
		return
	}
	members := slices.DeleteFunc(slices.Clone(divergence.Minority),
		func(node string) bool { return m.state.Members[node] == nil })
	astray, _ := protocol.Spare(m.state.placed(), members)
	reason := fmt.Sprintf("%s at step %d differs from that of most of its holders",
		events.UnitName(divergence.Unit, len(m.state.Job.Layers)), divergence.Step)
	m.giveUp(astray, reason, true)
}

// giveUp ends the membership of nodes, alive or not. One that lives hears so, and asks to join again; what it holds
// counts then, unless it is astray.
func (m *Machine) giveUp(nodes []string, reason string, astray bool) {
	gone := false
	for _, node := range slices.Compact(slices.Sorted(slices.Values(nodes))) {
		if m.state.known(node) != nil {
			gone = true
			m.endMembership(node, reason, astray)
		}
	}
	if gone {
		m.negotiate(protocol.Urgent)
	}
}

// endMembership tells a node that it is taken for lost, and forgets it.
func (m *Machine) endMembership(node, reason string, astray bool) {
	refusal := refusalOf(events.RefusedMembership, node, reason)
	refusal.Incarnation, refusal.Astray = m.state.known(node).Incarnation, astray
	m.forget(node)
	m.refuse(refusal)
}

// concerns returns how urgent it is that a node is gone: whether it trains, or has a part in the negotiation under way.
func (m *Machine) concerns(node string) protocol.Urgency {
	if m.state.Members[node] != nil || m.state.Negotiation != nil && m.state.Negotiation.takesPart(node, "") {
		return protocol.Urgent
	}
	return protocol.Patient
}

// forget removes a node that is gone, and what it asked for; how often that happened is remembered, unless it was to go. An active one
// leaves a failure to be negotiated. A step that it told of stays broken. The monitor's word on its links counts no more. Requests of other
// nodes are still to be answered.
func (m *Machine) forget(node string) {
	gone := m.state.known(node)
	wished := gone != nil && gone.Wished || leaves(m.state.Pending, node)
	m.state.Pending = slices.DeleteFunc(m.state.Pending, func(change events.Change) bool {
		stays := change.Kind == events.ChangeFailure || change.Kind == events.ChangeBroken
		observed := change.Kind == events.ChangeLinkLost || change.Kind == events.ChangeRestored
		return change.Node == node && !stays || change.Peer == node && observed
	})
	if !wished {
		m.noteStart(gone, m.cause.Logged)
		m.noteFailure(node, m.cause.Logged, m.lived(node, m.cause.Logged), 1)
	}
	if m.state.Members[node] != nil {
		m.state.Pending = append(m.state.Pending, events.Change{Kind: events.ChangeFailure, Node: node, Cause: m.cause.ID})
		m.state.Lacking = time.Time{} // nobody has waited for this node yet
	}
	delete(m.state.Members, node)
	m.dropJoiner(node)
	delete(m.state.Deadlines, node)
	delete(m.state.Paces, node)
	delete(m.state.Pauses, node)
	delete(m.state.Breaks.Told, node)
	delete(m.state.Breaks.After, node)
	delete(m.state.Busy, busyKey(protocol.Consenting, node))
	delete(m.state.Busy, busyKey(protocol.Promising, node))
	m.forgetLinks(node)
	m.state.Costs.Leave(node)
}

func refusalOf(refused, node, reason string) events.Refusal {
	return events.Refusal{Node: node, Refused: refused, Reason: reason}
}

func (m *Machine) refuse(refusal events.Refusal) {
	m.say(events.MembershipRefused, refusal.Node, &refusal)
}
