package machine

import (
	"fmt"
	"maps"
	"slices"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

// back is that a negotiation goes on from an older step, because nobody who is here has all of a newer one.
type back struct {
	Lost    uint64   `json:"lost"`             // steps to be trained again, as far as those who are here can tell
	AtMost  bool     `json:"atMost,omitempty"` // nobody told how far training had come: so many could have been made
	Forgone []string `json:"forgone"`          // nodes that may hold a newer step and were waited for in vain
}

// resumePoint returns the step from which all go on: the newest of which those who take part have every unit. It is an
// older step if none of them trained that one, or if there is none. The older step is returned once no node can bring a
// newer one, or none did for as long as it is worth waiting. Until then resumePoint returns what lacks.
func (m *Machine) resumePoint() (protocol.Resume, *lack) {
	held, disputed := m.held(m.window())
	units := m.state.Job.Units()
	point, missing, ok := protocol.ResumePoint(units, held)
	switch {
	case m.begins() && m.fromSnapshots():
		return m.fromSnapshot()
	case m.isFirst():
		if first, ok := m.wayBack(point, ok); ok { // step 0, which anybody can make, is older than any snapshot
			return first, nil
		}
	case ok && len(m.steps()) > 0:
		return point, nil // who trained it is here, and nobody is far ahead of that
	}
	older, found := m.wayBack(point, ok)
	lacks := &lack{reason: m.lost(missing, disputed, found), awaits: m.holdersOf(missing)}
	if m.begins() || m.state.Stop == nil && m.state.Plan != nil && m.isGone(missing) {
		lacks.awaits = m.livingOf(missing)
	}
	if ok { // those who missed the commit have the step from which the plan in force went on
		missing = slices.Collect(events.Each([]events.Range{{First: 0, End: units}}))
		trained := fmt.Sprintf("nobody who trained under generation %d is here", m.state.generation())
		lacks.reason = trained + m.waitingFor(missing)
	}
	if !found || m.mayAsk() {
		return older, lacks
	}
	if m.state.Stop != nil && older.Step == m.state.Stop.Step {
		return older, nil // the last snapshot: nothing is lost, and nobody has a newer step
	}
	reached, atMost := m.reached()
	way := &back{Lost: reached - min(reached, older.Step), AtMost: atMost, Forgone: m.mayBring(missing)}
	if lacks.awaits, lacks.seconds = way.Forgone, m.patience(way); lacks.seconds > 0 {
		lacks.reason += fmt.Sprintf("; in %.0f s training goes back by %s %d steps, to step %d", lacks.seconds, way.roughly(), way.Lost,
			older.Step)
		return older, lacks
	}
	m.state.Negotiation.Back = way
	return older, nil
}

// fromSnapshot returns the newest snapshot that those who take part can read whole: a user has training begin there. The first step does
// not take its place: all that was trained would be given up, and nobody be told. If the cluster knows of a newer one, others have as long
// as after a stop to bring that.
func (m *Machine) fromSnapshot() (protocol.Resume, *lack) {
	stored, snapshot, found := protocol.SnapshotPoint(m.state.Job.Units(), m.stored())
	newest := m.state.Stored
	isNewest := stored.Step >= newest.Step || !m.counts(events.Snapshot{Step: newest.Step, Plan: newest.Plan})
	lacks := &lack{awaits: m.holdersOf(nil)}
	switch {
	case found && (isNewest || len(lacks.awaits) == 0):
		m.state.Negotiation.Snapshot = snapshot
		return stored, nil
	case !found && m.state.Differ != "":
		lacks.reason = "training is to begin from a snapshot, as a user asked, and " + m.instead(false) + ". " + endWrong
		return stored, lacks
	case !found:
		lacks.reason = "training is to begin from a snapshot, as a user asked, and who is here can read none as a whole: start the " +
			"scripts where there is one. To begin at the first step instead: reknit cluster reset"
		return stored, lacks
	}
	if lacks.seconds = m.lackingFor(startSeconds); lacks.seconds <= 0 {
		m.state.Negotiation.Snapshot = snapshot
		return stored, nil
	}
	lacks.reason = fmt.Sprintf("who is here can read a snapshot of step %d, and none of step %d, which is the newest; in %.0f s "+
		"training begins from the older one", stored.Step, newest.Step, lacks.seconds)
	return stored, lacks
}

// lackingFor returns how much of a wait is left, in seconds, of which the first who asks is the beginning.
func (m *Machine) lackingFor(wait float64) float64 {
	now := m.state.Heard
	if m.state.Lacking.IsZero() || now.Before(m.state.Lacking) {
		m.state.Lacking = now
	}
	return max(0, wait-now.Sub(m.state.Lacking).Seconds())
}

// wayBack returns the newest of what is older than what was trained last: the point from which the plan in force went
// on, where there is one, a step of an older plan, or a snapshot.
func (m *Machine) wayBack(point protocol.Resume, ok bool) (protocol.Resume, bool) {
	if !ok {
		point, ok = m.beginning()
	}
	if !ok {
		point, ok = m.olderPoint()
	}
	stored, snapshot, found := protocol.SnapshotPoint(m.state.Job.Units(), m.stored())
	if found && (!ok || stored.Step > point.Step) {
		m.state.Negotiation.Snapshot = snapshot
		return stored, true
	}
	return point, ok
}

// startSeconds is how long after a stop the hosts that have its snapshot are waited for: somebody starts one after the other.
const startSeconds = 900

// patience returns for how many seconds those are still waited for who may bring a newer step.
func (m *Machine) patience(way *back) float64 {
	if len(way.Forgone) == 0 {
		return 0
	}
	wait := protocol.Patience(way.Lost, m.stepSeconds())
	if m.state.Stop != nil {
		wait = max(wait, startSeconds)
	}
	return m.lackingFor(wait)
}

// roughly says of which kind the number of lost steps is.
func (b *back) roughly() string {
	if b.AtMost {
		return "at most"
	}
	return "about"
}

// reached returns how far training had come before it stopped: by those who are here, or else by the last heartbeats
// of those who were lost. If nobody told, as where the hub was away with all of them, it is how far it may have come at most: nodes
// train on without a hub.
func (m *Machine) reached() (step uint64, atMost bool) {
	trained := m.state.Stopped.Sub(m.state.Committed)
	return protocol.Reached(m.told(), m.state.Plan.ResumeStep, trained.Seconds(), m.stepSeconds())
}

// told returns how far nodes that train say that they are, or else how far those were that are lost.
func (m *Machine) told() []uint64 {
	if steps := m.steps(); len(steps) > 0 {
		return steps
	}
	return slices.Collect(maps.Values(m.state.Fallen))
}

// beginning returns the step from which the plan in force went on, where those who take part have it whole: members
// whom the plan gave nothing to train, and nodes that missed its commit, have it still when those who trained are far
// ahead. The state that the former have at that step may be of the history that was left, if the plan went back.
func (m *Machine) beginning() (protocol.Resume, bool) {
	if m.isFirst() || m.state.WentBack {
		return protocol.Resume{}, false
	}
	first := m.state.Plan.ResumeStep
	held, _ := m.held(protocol.Window{First: first, Last: first})
	point, _, ok := protocol.ResumePoint(m.state.Job.Units(), held)
	return point, ok
}

// olderPoint returns the newest step that those who take part have whole from a plan before the one in force.
func (m *Machine) olderPoint() (protocol.Resume, bool) {
	if m.isFirst() {
		return protocol.Resume{}, false
	}
	window, older := protocol.Older(m.state.Plan.ResumeStep), map[uint64][]protocol.Claim{}
	for generation, claims := range m.state.Negotiation.Older {
		older[generation] = claims.within(window)
	}
	return protocol.OlderPoint(m.state.Job.Units(), older)
}

// mayBring returns the nodes that may still bring a step of which these units are missing: none where nobody can bring
// some of them.
func (m *Machine) mayBring(missing []int) []string {
	if m.state.Stop != nil {
		return m.holdersOf(missing) // their hosts have the last snapshot
	}
	living, brought := m.livingOf(missing), map[int]bool{}
	for _, node := range living {
		for unit := range events.Each(m.state.Plan.UnitsOf(node)) {
			brought[unit] = true
		}
	}
	if slices.ContainsFunc(missing, func(unit int) bool { return !brought[unit] }) {
		return nil
	}
	return living
}

// livingOf returns those of holdersOf that may live; none where training begins, for which nobody needs what they hold.
func (m *Machine) livingOf(units []int) []string {
	if m.begins() {
		return nil
	}
	return slices.DeleteFunc(m.holdersOf(units), func(node string) bool {
		member, _ := m.state.Plan.Member(node)
		return m.state.Gone[node] == member.Incarnation
	})
}

// awaits reports whether the cluster waits for a node, or goes back because it did so in vain.
func (m *Machine) awaits(node string) bool {
	under := m.state.Negotiation
	return slices.Contains(m.state.Hold.Awaits, node) ||
		under != nil && under.Back != nil && slices.Contains(under.Back.Forgone, node)
}

// lostSteps returns how many completed steps are trained again, and whether that is the most that it can be.
func (n *negotiation) lostSteps() (steps uint64, atMost bool) {
	if n.Back == nil {
		return 0, false
	}
	return n.Back.Lost, n.Back.AtMost && n.Back.Lost > 0
}
