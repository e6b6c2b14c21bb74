package machine

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

// A job stops where all who train leave at one time: somebody asked for it, or each node was asked to go. Nobody is left to
// move state to, so that all write a snapshot of the step at which they stop, and no plan follows.

// stored is the last snapshot that is complete in a tier that outlives its processes.
type stored struct {
	Tier string `json:"tier"`
	Step uint64 `json:"step"`
	Plan string `json:"plan"`
}

// stopRequested has all who train leave. A step that broke before is mended first.
func (m *Machine) stopRequested(request events.StopRequest) {
	if reason := m.cannotStop(); reason != "" {
		m.refuseStop(reason)
		return
	}
	m.state.Stopping = inShort(request.Reason)
	if under := m.state.Negotiation; under != nil && under.Opening.Stop {
		return // what is under way answers it: begun anew, it would never end where somebody asks each minute
	}
	m.state.Together = 0 // all leave in one change
	for _, node := range slices.Sorted(maps.Keys(m.state.Members)) {
		if !leaves(m.state.Pending, node) {
			m.state.Pending = append(m.state.Pending,
				events.Change{Kind: events.ChangeLeave, Node: node, Cause: m.cause.ID, Reason: m.state.Stopping})
		}
	}
	m.negotiate(protocol.Urgent)
}

func (m *Machine) refuseStop(reason string) {
	m.state.Stopping = ""
	m.say(events.StopRefused, m.settings.Cluster, &events.StopRefusal{Reason: reason})
}

// cannotStop says why training cannot stop without a loss; empty where it can.
func (m *Machine) cannotStop() string {
	if m.state.Complete != nil {
		return m.isComplete()
	}
	if m.state.Plan == nil || len(m.state.Members) == 0 {
		return "nobody trains"
	}
	if m.state.Hold.Active {
		return "training stands still, so that no step can be made of which all write a snapshot: reknit status says why"
	}
	for _, node := range slices.Sorted(maps.Keys(m.state.Members)) {
		if m.placed(node) && !m.state.Members[node].Snapshots && !m.state.Job.Unchanged() {
			return node + " writes no snapshots (REKNIT_SNAPSHOT_FOLDER or REKNIT_SNAPSHOT_BUCKET at every node), and what it " +
				"trains would be lost: two signals within 10 s to each agent end the job anyway"
		}
	}
	return ""
}

// allLeaveBut reports whether every active node but one has asked to leave.
func (m *Machine) allLeaveBut(one string) bool {
	for node := range m.state.Members {
		if node != one && !leaves(m.state.Pending, node) {
			return false
		}
	}
	return true
}

// lastSnapshot tells at which step all stop, of which they write a snapshot.
func (m *Machine) lastSnapshot() {
	under := m.state.Negotiation
	under.enter(protocol.Stopping)
	m.say(events.SnapshotRequested, under.ID, &events.SnapshotRequest{
		Negotiation: under.ID, Step: under.StopStep, Unchanged: m.state.Job.Unchanged(),
	})
}

// snapshotWritten notes which units of the last snapshot are written, and that the node has made that step.
func (m *Machine) snapshotWritten(part events.SnapshotPart) {
	if _, was := m.before(part.Node); was && part.Plan == m.state.PlanDigest {
		m.begun(part.Step)
	}
	if part.Tier == memoryTier || !m.isLast(part.Node, part.Step, part.Plan) {
		return
	}
	under := m.state.Negotiation
	if under.Wrote == nil { // a memory with none of them was read
		under.Wrote = map[int]bool{}
	}
	for unit := range events.Each(part.Units) {
		under.Wrote[unit] = true
	}
	m.madeLast(part.Node, m.state.generation(), part.Step)
}

// The tiers of snapshots.
const (
	memoryTier = "memory" // ends with the processes whose memory it is
	diskTier   = "disk"   // each holder of a unit writes it
	remoteTier = "remote" // one holder of each unit writes it
)

// snapshotCompleted stops training where the snapshot is that of the step at which all stop. A slower tier completes older ones meanwhile,
// and one that lies may have told of a step that never comes.
func (m *Machine) snapshotCompleted(snapshot events.CompleteSnapshot) {
	if snapshot.Tier == memoryTier || m.isStored() {
		return
	}
	last, next := m.state.Stored, stored{snapshot.Tier, snapshot.Step, snapshot.Plan}
	isOlder := last.Plan == next.Plan && next.Step < last.Step || last.Plan == m.state.PlanDigest && last.Plan != next.Plan
	if !isOlder || m.isWhereAllStop(next) {
		m.state.Stored = next
	}
}

// isStored reports whether the snapshot of the step at which all stop is complete, or nobody needs one.
func (m *Machine) isStored() bool {
	under := m.state.Negotiation
	return under != nil && under.Phase == protocol.Stopping && (m.state.Job.Unchanged() || m.isWhereAllStop(m.state.Stored))
}

// isWhereAllStop reports whether a snapshot is of the step at which all stop.
func (m *Machine) isWhereAllStop(of stored) bool {
	under := m.state.Negotiation
	return under != nil && under.Phase == protocol.Stopping && of.Step == under.StopStep && of.Plan == m.state.PlanDigest
}

// mayStop reports whether the snapshot of the step at which all stop is complete, and all have made that step or had the time to.
func (m *Machine) mayStop() bool {
	return m.isStored() && (m.state.Negotiation.waited || len(m.behind()) == 0)
}

// stop says that training has stopped, and who did not tell that it made the last step.
func (m *Machine) stop() {
	under := m.state.Negotiation
	stop := events.JobStop{
		Generation: m.state.generation(), Step: under.StopStep, Plan: m.state.PlanDigest,
		Reason: cmp.Or(m.state.Stopping, under.Opening.Changes[0].Reason), Behind: m.behind(),
	}
	if !m.state.Job.Unchanged() {
		stop.Tier = m.state.Stored.Tier
	}
	m.say(events.TrainingStopped, m.settings.Cluster, &stop) // first: who heard of the abort alone would train on
	m.say(events.Aborted, under.ID, &events.Abort{Negotiation: under.ID, Generation: under.Opening.Generation,
		Reason: stop.String()})
	m.halt(&stop, m.cause.Logged)
}

// stopped hears its own word that training has stopped. One that has lost its memory learns so.
func (m *Machine) stopped(stop events.JobStop) {
	if known := m.state.Stop; known != nil && known.Generation == stop.Generation {
		m.state.EndTold = m.cause.Logged
		return
	}
	isNews := m.state.Stop == nil && len(m.state.Members) > 0 && m.state.Committed.Before(m.cause.Logged)
	if isNews && m.state.generation() == stop.Generation {
		m.halt(&stop, m.cause.Time) // it may be told again, days later
		m.state.EndTold = m.cause.Logged
	}
}

// halt forgets all who trained: they end, and nobody waits for their processes. Later joiners go on from the snapshot. Earlier failures are
// forgotten, too: somebody starts the scripts again on purpose, and there is nobody whom their failures would disturb.
func (m *Machine) halt(stop *events.JobStop, now time.Time) {
	m.begun(stop.Step)
	clear(m.state.Gone)
	clear(m.state.Fallen)
	for _, member := range m.state.Plan.Nodes {
		m.state.Gone[member.Node], m.state.Fallen[member.Node] = member.Incarnation, stop.Step
		m.forgetLinks(member.Node)
		m.state.Costs.Leave(member.Node)
	}
	m.state.Stop, m.state.Stopping, m.state.Negotiation, m.state.Pending, m.state.Finals = stop, "", nil, nil, nil
	m.state.Paused, m.state.Ask, m.state.Stopped, m.state.Lacking = true, true, now, time.Time{}
	m.state.Ended, m.state.EndTold = now, now
	m.state.Hold = hold{Ever: m.state.Hold.Ever}
	clear(m.state.Failed)
	clear(m.state.Starts)
	clear(m.state.Members)
	clear(m.state.Joiners)
	clear(m.state.Deadlines)
	clear(m.state.Leavers)
	clear(m.state.Paces)
	clear(m.state.Busy)
}

// restartTime is within which a script that was starting again while the others stopped asks for its place.
const restartTime = startSeconds * time.Second

// hasStopped says that training has stopped to a node that was only starting its script again while the others stopped: its agent was
// started before, or holds a part of the state where nobody knows since when it runs. Empty for one that is started on purpose since.
func (m *Machine) hasStopped(join events.Join) string {
	stop, past := m.state.Stop, join.Trained
	switch {
	case stop == nil:
		return ""
	case join.AgentSeconds > 0 && !m.cause.Logged.Add(-seconds(join.AgentSeconds)).Before(m.state.Ended):
		return ""
	case join.AgentSeconds == 0 && (past == nil || past.Generation > stop.Generation || m.cause.Logged.Sub(m.state.Ended) > restartTime):
		return ""
	}
	return stop.String()
}
