package machine

import (
	"slices"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

// negotiations are what is asked for and under way, and what became of it since the last commit.
type negotiations struct {
	Asked       []request       `json:"asked,omitempty"` // by users, and not decided yet
	Pending     []events.Change `json:"pending"`         // changes that no commit has brought about yet
	Together    int             `json:"together"`        // that are asked for and negotiated at a time; zero: all, less: none
	Negotiation *negotiation    `json:"negotiation,omitempty"`
	Hold        hold            `json:"hold"`
	Renewals    int             `json:"renewals"`   // negotiations since the last commit that ended for what is not urgent
	Reasked     int             `json:"reasked"`    // of these since the last commit: opened anew for an answer that nobody can do without
	Unanswered  int             `json:"unanswered"` // questions in a row that the planner or the restorer did not answer
	Deferred    bool            `json:"deferred"`   // lost nodes were waited for since the last commit: once is enough
	Lacking     time.Time       `json:"lacking"`    // since when the holder of the last steps is waited for; zero: none is
	Ask         bool            `json:"ask"`        // for snapshots: living nodes did not have all units
}

// due returns the pending changes that can be negotiated now: all that press, and of those that were asked for as many
// as are negotiated together: none where that is less than zero. A joiner that failed again and again waits.
func (m *Machine) due(now time.Time) []events.Change {
	var due []events.Change
	asked := 0
	for _, change := range m.state.Pending {
		joiner := m.state.Joiners[change.Node]
		waits := change.Kind == events.ChangeJoin && joiner != nil && (joiner.NotBefore.After(now) || m.state.Stopping != "")
		if waits || !urgent(change) && m.state.Together != 0 && asked >= m.state.Together {
			continue
		}
		if !urgent(change) {
			asked++
		}
		due = append(due, change)
	}
	return due
}

// allTurns has nobody wait for its turn to join any more, and reports whether somebody did.
func (m *Machine) allTurns() bool {
	waited := false
	for _, joiner := range m.state.Joiners {
		waited = waited || !joiner.NotBefore.IsZero()
		joiner.NotBefore = time.Time{}
	}
	return waited
}

// urgent reports whether the plan in force cannot be trained any more after a change.
func urgent(change events.Change) bool {
	return change.Kind == events.ChangeFailure || change.Kind == events.ChangeLinkLost ||
		change.Kind == events.ChangeBroken
}

// refuseThose drops the pending changes that match and can be refused, and tells who asked.
func (m *Machine) refuseThose(reason string, match func(events.Change) bool) {
	told := map[string]bool{} // one cause says one refusal to a node; its first request stands for the others
	m.state.Pending = slices.DeleteFunc(m.state.Pending, func(change events.Change) bool {
		if urgent(change) || !match(change) {
			return false
		}
		if !told[change.Node] && change.Kind != events.ChangeMeasured {
			m.refuseChange(change, reason)
		}
		told[change.Node] = told[change.Node] || change.Kind != events.ChangeMeasured // which nobody asked for
		m.undo(change)
		return true
	})
}

func isLeave(change events.Change) bool { return change.Kind == events.ChangeLeave }

func (m *Machine) refuseChange(change events.Change, reason string) {
	refusal := refusalOf(change.Kind, change.Node, reason)
	if joiner := m.state.Joiners[change.Node]; joiner != nil {
		refusal.Incarnation = joiner.Incarnation
	}
	m.refuse(refusal)
}

// undo takes back what a refused change had already set.
func (m *Machine) undo(change events.Change) {
	switch change.Kind {
	case events.ChangeJoin:
		m.dropJoiner(change.Node)
		m.forgetApart(change.Node)
	case events.ChangeLeave:
		delete(m.state.Deadlines, change.Node)
	case events.ChangeConnect:
		m.state.Cut[pairKey(change.Node, change.Peer)] = true
	case events.ChangeRestored:
		m.markLost(events.LinkState{From: change.Node, To: change.Peer}, true)
	case events.ChangeDisconnect:
		m.state.join(change.Node, change.Peer)
	}
}

// impossible hears that the planner or the restorer has no answer. Half of several changes that were asked for are tried without the
// others, so that an impossible one does not take innocent ones with it. The last one alone is refused, and training goes on as it was;
// after a failure there is no way back, and the cluster holds until something changes. Before the first plan, and after a stop, nobody is
// refused: who comes next may make one possible. So it is with who joins after a failure: what it left is tried without the joiner, who may
// have what is missing, and be refused once others train.
func (m *Machine) impossible(failure events.Failure) {
	under := m.under(failure.Negotiation, protocol.Consenting, protocol.Planning, protocol.Restoring)
	if under == nil {
		return
	}
	asked := slices.DeleteFunc(slices.Clone(under.Opening.Changes), urgent)
	m.ends(failure.Reason)
	switch {
	case under.Outdated: // who came since may make it possible
		m.renew()
	case m.isFirst() || m.state.Stop != nil:
		m.stuck("waiting for more nodes, or for larger ones: " + failure.Reason)
	case len(asked) == 0:
		m.stuck(failure.Reason)
	case len(asked) > 1:
		m.state.Together = len(asked) / 2
	case asked[0].Kind == events.ChangeJoin && len(under.Opening.Changes) > 1: // beside what is urgent
		m.state.Together = -1
	default:
		m.refusing(failure.Reason, func(change events.Change) bool { return change == asked[0] })
	}
}
