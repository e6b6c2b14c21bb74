package machine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/reknit/reknit/events"
)

// membership is where a node stands with its cluster.
type membership int

const (
	outside membership = iota // it has not asked for a place, or was told to ask again
	joining                   // it asked
	member                    // it took up a plan that names it
	leaving                   // it is to go
	givenUp                   // the cluster went on without it: it asks again when its trainer is at a boundary
	over                      // it has left, or was refused for good
)

var membershipNames = [...]string{"outside", "joining", "member", "leaving", "given up", "over"}

func (m membership) String() string { return membershipNames[m] }

// Join asks for a place as a new incarnation. The work of the incarnation before ends. The trainer's state stays, and
// may be claimed. Back says that another process has asked by this node's name since.
func (m *Machine) Join(now time.Time, incarnation string, back bool) []Action {
	m.endNegotiation()
	m.noticeThatTrainingGoesOn()
	m.membership, m.incarnation, m.replaced, m.tookBack = joining, incarnation, false, m.tookBack || back
	m.newest, m.plan, m.pending, m.overtaking, m.reread = newest{}, nil, nil, nil, 0
	m.ended, m.promise, m.awaited, m.stuck, m.asked = nil, nil, 0, false, nil
	m.snapshots.failing = nil // who hears of the join forgets what was told
	agentSeconds := 0.0
	if !m.settings.Started.IsZero() {
		agentSeconds = max(now.Sub(m.settings.Started).Seconds(), 0)
	}
	m.do(Say{m.speaker.First(now, incarnation, events.JoinRequested, m.settings.Node, &events.Join{
		Node: m.settings.Node, Name: m.settings.Name, Incarnation: incarnation,
		Address: m.settings.Address, Site: m.settings.Site, ShardAddress: m.settings.ShardAddress, PreCopies: m.settings.PreCopies,
		Snapshots:   len(m.settings.Tiers) > 0,
		MemoryBytes: m.settings.MemoryBytes, StateCopies: m.settings.StateCopies, Samples: m.settings.Samples,
		Neighbours: m.settings.Neighbours,
		Trained:    m.past(), AgentSeconds: agentSeconds, SnapshotFolder: events.Shorten(m.settings.Folder, mostFolder),
		Job: m.settings.Job,
	})})
	return m.act()
}

const mostFolder = 256 // bytes of a folder's path that are told

// Leave asks to go. End follows once the cluster can do without the node. A leave that was refused can be asked for
// again. Nothing is asked if a user had the node leave already.
func (m *Machine) Leave(now time.Time, reason string, deadline time.Duration) []Action {
	if m.membership == over || m.membership == leaving && m.leave == nil { // it has left, or a user asked already
		return nil
	}
	if m.leave == nil {
		m.leave = &events.Leave{Node: m.settings.Node, Reason: reason, DeadlineSeconds: deadline.Seconds()}
		m.leaveAsked = now
	}
	if m.membership != givenUp && m.membership != outside && !m.mayClaim() { // else it is said once the node is back
		m.sayLeave()
	}
	return m.act()
}

// sayLeave asks to go in the name of this incarnation; each leave that was refused gives the next one another id.
func (m *Machine) sayLeave() {
	request := fmt.Sprintf("%s-%d", m.incarnation, m.leavesRefused)
	m.do(Say{m.speaker.First(m.leaveAsked, request, events.LeaveRequested, m.settings.Node, m.leave)})
	m.membership = leaving
}

// hasToLeave has the node be one that is to go, if the changes of a negotiation say so. Its trainer is told once, where neither it
// nor its agent asked: to be told of its own wish would have a script that asks whenever it is told ask for good, of a cluster that
// refuses.
func (m *Machine) hasToLeave(changes []events.Change) {
	for _, change := range changes {
		if change.Kind != events.ChangeLeave || change.Node != m.settings.Node {
			continue
		}
		if m.membership != leaving && m.leave == nil {
			m.do(Leaving{Reason: cmp.Or(change.Reason, "a user asked for it")})
		}
		m.membership = leaving
	}
}

// refused hears that a request of this node was refused, or that its membership is over.
func (m *Machine) refused(_ events.Event, refusal events.Refusal) {
	mine := refusal.Incarnation == m.incarnation
	switch {
	case refusal.Node != m.settings.Node:
	case refusal.Incarnation != "" && m.isAnother(refusal.Incarnation):
		if refusal.Refused == events.RefusedMembership { // else it was never taken for the one who has the name
			m.do(Look{})
		}
	case refusal.Complete && !refusal.OtherJob && (mine || refusal.Incarnation == ""):
		m.end(End{Complete: true, Reason: refusal.Reason})
	case refusal.Refused == events.ChangeLeave:
		m.stay(refusal.Reason)
	case mine && refusal.Stopped:
		m.end(End{Left: true, Stopped: true, Reason: refusal.Reason})
	case mine && refusal.Refused == events.ChangeJoin:
		m.waits = Waits{} // the next incarnation has not begun to train
		m.end(End{Refused: true, OtherJob: refusal.OtherJob, Left: m.leave != nil && !refusal.OtherJob, Reason: refusal.Reason})
	case mine && refusal.Refused == events.RefusedMembership:
		if refusal.Astray {
			m.claimable = 0
			clear(m.imported)
			m.do(Forget{})
		}
		m.giveUp(refusal.Reason)
	}
}

// joinDelayed hears that this node waits for its turn.
func (m *Machine) joinDelayed(event events.Event, delay events.JoinDelay) {
	switch {
	case delay.Node != m.settings.Node:
	case m.isAnother(delay.Incarnation):
		m.do(Look{})
	case delay.Incarnation == m.incarnation && m.membership == joining:
		asked := event.Time.Add(time.Duration(delay.Seconds * float64(time.Second)))
		reason := fmt.Sprintf("this node is asked at %s: %s", asked.UTC().Format(time.TimeOnly), delay.Reason)
		m.held(event, events.Hold{Reason: reason})
	}
}

// leaveDelayed hears that the others need longer than this node has.
func (m *Machine) leaveDelayed(_ events.Event, delay events.LeaveDelay) {
	if delay.Node == m.settings.Node && delay.Incarnation == m.incarnation && m.leave != nil {
		m.do(Late{Reason: delay.Reason, Seconds: delay.Seconds, Alone: delay.Alone})
	}
}

// stay takes back the wish to leave, which was refused. A node that has no place keeps it: what was refused is the word of an
// incarnation before, which came to a log that does not know that one, say. The wish is said again once there is a place.
func (m *Machine) stay(reason string) {
	if m.membership != member && m.membership != leaving {
		return
	}
	m.leave = nil
	m.leavesRefused++
	m.do(Stays{Reason: reason})
	if m.membership == leaving {
		m.membership = member
	}
}

// completed hears that the job is done: nobody needs what this node holds, and nothing is left to train.
func (m *Machine) completed(_ events.Event, end events.JobEnd) {
	nodes := "1 node"
	if len(end.Nodes) != 1 {
		nodes = fmt.Sprintf("%d nodes", len(end.Nodes))
	}
	reason := fmt.Sprintf("the job is complete: step %d was made by %s", end.Step, nodes)
	m.end(End{Complete: true, Reason: reason})
}

// giveUp has the node leave its step and ask for a place again, once. Nothing more is said in this incarnation's name.
func (m *Machine) giveUp(reason string) {
	if m.membership == outside {
		return // it is about to ask
	}
	m.endNegotiation()
	m.membership, m.reason = givenUp, reason
	if m.promise == nil && m.leftOut() { // to who has promised the others may come back
		m.replace()
	}
	m.abandon(m.newest.generation + 1)
}

// replace notes that a plan does without this node. The time that follows is no stall of training: the others go on.
func (m *Machine) replace() { m.replaced, m.pace.completed = true, time.Time{} }

// another reports whether another process of this node's name is among members: one of before, or one that has taken it.
func (m *Machine) another(members []events.Member) bool {
	return slices.ContainsFunc(members, func(member events.Member) bool {
		return member.Node == m.settings.Node && m.isAnother(member.Incarnation)
	})
}

// isAnother reports whether an incarnation of this node is that of another process.
func (m *Machine) isAnother(incarnation string) bool {
	return !strings.HasPrefix(incarnation, m.settings.Process)
}

// Replaced hears that another process asked for a place by this node's name later. This one ends where it leaves the name.
// Else it gives up its step, unless it has, and asks again.
func (m *Machine) Replaced() []Action {
	if m.yields() {
		m.end(End{Reason: "another process asked for a place by this name: expected a name for each node"})
		return m.act()
	}
	if m.membership != givenUp && m.membership != over {
		m.giveUp("another process of this name asked for a place")
	}
	return m.act()
}

// Revoked hears that the kit of this node is worth nothing any more: the cluster goes on without it, and nobody hears what it says.
func (m *Machine) Revoked() []Action {
	m.end(End{Revoked: true, Reason: "this node's kit was revoked: expected a new one of reknit provision security (REKNIT_NATS_KIT)"})
	return m.act()
}

// yields reports whether this process leaves the node's name to another one that asked for a place by it later. It does
// where nothing that it holds can be claimed: training loses nothing. It does where the other trains under a newer plan, and
// where it took the name back once since its last plan: else both would take the name in turn.
func (m *Machine) yields() bool { return m.claimable == 0 || m.outdone > m.claimable || m.tookBack }

// noticeLeftOut gives up the step of a member that the newest plan does not name, and that has made no promise:
// nobody trains with it any more.
func (m *Machine) noticeLeftOut() {
	if m.promise == nil && m.leftOut() {
		m.abandon(m.ahead().Generation)
	}
}

// awaitedToItsStep reports whether the others train with this node up to the step of the plan that leaves it out:
// that plan was made with its promise.
func (m *Machine) awaitedToItsStep() bool {
	return m.leftOut() && m.promise != nil && m.ahead().ResumeStep >= *m.promise
}

// leftOut reports whether the newest plan, which this node has not come to yet, does not name it.
func (m *Machine) leftOut() bool {
	return len(m.pending) > 0 && !m.named(m.ahead().Nodes)
}

// named reports whether this incarnation is among members.
func (m *Machine) named(members []events.Member) bool {
	return slices.ContainsFunc(members, func(member events.Member) bool {
		return member.Node == m.settings.Node && member.Incarnation == m.incarnation
	})
}

func (m *Machine) end(end End) {
	m.endNegotiation()
	m.membership, m.jobComplete = over, end.Complete
	m.do(end)
	m.letGo()
}
