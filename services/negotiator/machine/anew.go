package machine

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/profile"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

// Training begins at its first step, though there was a plan, where nothing was made of it: all its processes have ended, as their agents
// told, and nobody told of a step. So scripts that failed in their first step begin once they are mended. Or a user asked for it.

// isFirst reports whether the next plan begins training, as the very first one does.
func (m *Machine) isFirst() bool { return m.state.Plan == nil || m.begins() }

// begins reports whether training begins anew with the next plan, or with that which is negotiated.
func (m *Machine) begins() bool {
	if under := m.state.Negotiation; under != nil {
		return under.Opening.Begins
	}
	return m.mayBegin()
}

// mayBegin reports whether training begins anew if a plan is negotiated now. The very first plan says so by its generation, unless nodes
// told of a later one.
func (m *Machine) mayBegin() bool {
	if m.state.Plan == nil {
		return len(m.state.Recall.Told) > 0 && !m.isForgotten()
	}
	return len(m.state.Members) == 0 && (m.state.Reset != nil || m.state.Unbegun && m.madeNothing())
}

// trusts reports whether what a member says it holds needs no proof in the negotiation under way.
func (m *Machine) trusts(node, incarnation string) bool {
	return m.begins() || m.state.trusted(node, incarnation)
}

// allEnded reports whether all who had a place in the plan in force are proven to be gone.
func (m *Machine) allEnded() bool {
	return !slices.ContainsFunc(m.state.Plan.Nodes, func(member events.Member) bool {
		return m.state.Gone[member.Node] != member.Incarnation && m.placed(member.Node)
	})
}

// heedsSnapshots reports whether snapshots count. A user who has training begin anew says whether they do. If no step was made since
// training began, there is none of it: all that can be read was given up before.
func (m *Machine) heedsSnapshots() bool {
	return m.state.Plan == nil && m.state.Reset == nil || m.fromSnapshots() || !m.begins()
}

// fromSnapshots reports whether a user has training go on from the newest snapshot.
func (m *Machine) fromSnapshots() bool { return m.state.Reset != nil && m.state.Reset.Snapshots }

// madeNothing reports whether all who had a place in the plan in force are known to make no step any more: they are proven to be gone, or
// their agents, which keep what they left, told so when they asked for a place again.
func (m *Machine) madeNothing() bool {
	return !slices.ContainsFunc(m.state.Plan.Nodes, func(member events.Member) bool {
		isGone, isBlank := m.state.Gone[member.Node] == member.Incarnation, m.state.Blank[member.Node] == member.Incarnation
		return !isGone && !isBlank && m.placed(member.Node)
	})
}

// inherit hears what the process of a node tells of the one before it, whose state it has. It counts, too, if the node is refused.
func (m *Machine) inherit(join events.Join) {
	delete(m.state.Missed, join.Node)
	m.hearsPast(join)
	past := join.Trained
	before, was := m.before(join.Node)
	if past == nil || !was {
		return
	}
	m.begun(past.Step)
	if past.Step == 0 && past.Generation == m.state.generation() {
		m.state.Blank[join.Node] = before.Incarnation
	}
}

// before returns the process of a node that the plan in force names.
func (m *Machine) before(node string) (events.Member, bool) {
	if m.state.Plan == nil {
		return events.Member{}, false
	}
	return m.state.Plan.Member(node)
}

// begun hears how far somebody is: training has begun where that is beyond its first step.
func (m *Machine) begun(step uint64) { m.state.Unbegun = m.state.Unbegun && step == 0 }

// resetRequested gives up what was trained, unless somebody trains.
func (m *Machine) resetRequested(request events.ResetRequest) {
	if reason := m.cannotReset(request); reason != "" {
		m.refuseReset(reason)
		return
	}
	before := m.state.Reset
	isRepeated := before != nil && before.Snapshots == request.Snapshots
	if !isRepeated {
		reset := m.resetOf(request)
		if before != nil {
			reset.Step, reset.Silent = before.Step, before.Silent // all else that told of them was forgotten
		}
		if err := reset.Validate(); err != nil { // the log would refuse it, and nobody hear of it
			m.refuseReset(inShort(err.Error()))
			return
		}
		m.forgetTraining(&reset, m.cause.Logged)
	}
	m.refuseGivers()
	m.say(events.TrainingReset, m.settings.Cluster, m.state.Reset)
	if !isRepeated { // else what is under way answers it
		m.renew()
	}
}

// resetOf returns what a reset gives up: how far training had come, and who may live and train on.
func (m *Machine) resetOf(request events.ResetRequest) events.JobReset {
	if m.state.Plan == nil {
		return m.resetOfTold(request)
	}
	reset := events.JobReset{
		Generation: m.state.generation(), Reason: inShort(request.Reason), Snapshots: request.Snapshots,
	}
	reset.Step, _ = protocol.Reached(slices.Collect(maps.Values(m.state.Fallen)), m.state.Plan.ResumeStep, 0, 0)
	end, stop := m.state.Complete, m.state.Stop
	switch {
	case m.state.Job.Unchanged():
		reset.Step = 0 // nobody knows it
	case end != nil:
		reset.Step = end.Step
	case stop != nil:
		reset.Step = stop.Step
	}
	if end != nil {
		return reset
	}
	for _, node := range placedBy(m.state.Plan) {
		member, _ := m.before(node)
		hasEnded := m.state.Gone[node] == member.Incarnation || m.state.Blank[node] == member.Incarnation || m.state.Joiners[node] != nil
		if !hasEnded && len(reset.Silent) < events.MostSilent {
			reset.Silent = append(reset.Silent, node)
		}
	}
	for _, node := range slices.Sorted(maps.Keys(m.state.Missed)) {
		if len(reset.Silent) < events.MostSilent && !m.placed(node) {
			reset.Silent = append(reset.Silent, node)
		}
	}
	return reset
}

// miss notes that a process which had a place is lost, and may live: it trains on, or holds what it trained, until it says that it ended.
func (m *Machine) miss(lost events.NodeState) {
	if m.state.Plan == nil || lost.Proven || !m.state.trusted(lost.Node, lost.Incarnation) || !m.placed(lost.Node) {
		return
	}
	if m.state.Missed == nil {
		m.state.Missed = map[string]string{}
	}
	if len(m.state.Missed) < events.MostNodes {
		m.state.Missed[lost.Node] = lost.Incarnation
	}
}

func (m *Machine) refuseReset(reason string) {
	m.say(events.ResetRefused, m.settings.Cluster, &events.ResetRefusal{Reason: reason})
}

// begunAnew hears its own word that what was trained is given up. One that has lost its memory learns so.
func (m *Machine) begunAnew(reset events.JobReset) {
	isOf := m.state.Plan != nil && m.state.generation() == reset.Generation
	switch {
	case m.state.Reset != nil && m.state.Reset.Generation == reset.Generation:
		m.state.EndTold = m.cause.Logged
	case isOf && m.state.Negotiation == nil && m.state.Committed.Before(m.cause.Logged):
		m.forgetTraining(&reset, m.cause.Time) // it may be told again, days later
		m.state.EndTold = m.cause.Logged
	}
}

// cannotReset says why training does not begin anew; empty where it does.
func (m *Machine) cannotReset(request events.ResetRequest) string {
	members := slices.Sorted(maps.Keys(m.state.Members))
	switch {
	case m.state.Plan == nil && len(m.toldAndGone()) == 0:
		return "nothing was trained yet: training begins once nodes join"
	case request.Snapshots && m.state.Job.Unchanged():
		return "there are no snapshots of scripts that run --unchanged, which begin with their own checkpoints: reknit cluster reset, " +
			"without --from-snapshot"
	case len(members) > 0 && m.state.Complete == nil:
		return fmt.Sprintf("%s may train, or hold what was trained: end them first", named(members, itself))
	}
	return ""
}

// onlyGives is the memory that a node tells which runs no script, and gives what the last one left.
const onlyGives = 1 // byte

// givenUp says that nobody needs what a node keeps without a script: training begins. Its job is that of scripts. Empty for any other node.
func (m *Machine) givenUp(memory int64) string {
	if memory > onlyGives || m.state.Plan == nil && m.state.Reset == nil || !m.begins() {
		return ""
	}
	return "training begins at its first step, and nobody needs what is kept of before"
}

// refuseGivers refuses those who wait without a script.
func (m *Machine) refuseGivers() {
	for _, node := range slices.Sorted(maps.Keys(m.state.Joiners)) {
		if reason := m.givenUp(m.state.Joiners[node].MemoryBytes); reason != "" {
			m.turnOut(node, reason)
		}
	}
}

// forgetTraining has the next plan begin training. Nodes that wait for a place wait on. Failures of before are forgotten, as after a stop:
// somebody mended it, or starts another job, and nobody trains whom their failures would disturb.
func (m *Machine) forgetTraining(reset *events.JobReset, now time.Time) {
	m.state.Reset, m.state.Complete, m.state.Stop = reset, nil, nil
	m.state.Ended, m.state.EndTold, m.state.Finals = now, now, nil
	m.state.Paused, m.state.Ask, m.state.Lacking = true, false, time.Time{}
	m.state.Recall = recall{Told: m.state.Recall.Told, Floor: m.state.Recall.Floor}
	m.state.Poison = poison{Holds: m.state.Poison.Holds}
	m.state.Hold = hold{Ever: m.state.Hold.Ever}
	m.forgetCosts()
	m.state.Pending = slices.DeleteFunc(m.state.Pending, urgent)
	clear(m.state.Failed)
	clear(m.state.Starts)
	for _, joiner := range m.state.Joiners {
		joiner.NotBefore = time.Time{}
	}
	clear(m.state.Members)
	clear(m.state.Leavers)
	clear(m.state.Fallen)
	clear(m.state.Missed)
}

// forgetCosts forgets what the layers of another job took.
func (m *Machine) forgetCosts() {
	m.state.Costs = profile.Layers{}
	clear(m.state.Paces)
	clear(m.state.Pauses)
	clear(m.state.Measured)
}

// isGone reports whether nobody can bring some of the units that are missing: all who had them under the plan in force have ended, as their
// agents told.
func (m *Machine) isGone(missing []int) bool {
	living := map[int]bool{}
	for _, member := range m.state.Plan.Nodes {
		if m.state.Gone[member.Node] == member.Incarnation {
			continue
		}
		for unit := range events.Each(m.state.Plan.UnitsOf(member.Node)) {
			living[unit] = true
		}
	}
	return slices.ContainsFunc(missing, func(unit int) bool { return !living[unit] })
}

// nobodyLeft says how training goes on where all have ended.
func (m *Machine) nobodyLeft() string {
	switch {
	case m.state.Reset != nil:
		return "no node is left: training begins anew once nodes join"
	case m.begins():
		return "no node is left, and no step was made: training begins once nodes join"
	case m.state.Plan != nil && m.state.Job.Unchanged():
		return "no node is left: " + ownState
	case m.state.Plan != nil && m.allEnded():
		return "no node is left: who held the state has ended. Training goes on from a snapshot, if there is one, once nodes join; if " +
			"there is none, its state is gone. " + beginAnew
	}
	return "no node is left"
}
