package machine

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/reknit/reknit/events"
)

// finals are what nodes told of the end of training under the plan in force.
type finals struct {
	Step  uint64          `json:"step"`  // the latest after which training is complete for somebody
	Nodes map[string]bool `json:"told"`  // that it is so for them
	Units map[int]string  `json:"units"` // digests that holders told; empty where they told different ones
}

// take notes what a node told of the units that it holds. Digests of an earlier step than another node told of count no more: the nodes
// that told of it tell again.
func (f *finals) take(digests events.Digests, holds []events.Range) {
	switch {
	case digests.Step < f.Step:
		return
	case digests.Step > f.Step || f.Nodes == nil: // what a build before November 2026 remembers has another form
		*f = finals{digests.Step, map[string]bool{}, map[int]string{}}
	}
	f.Nodes[digests.Node] = true
	isHeld := map[int]bool{}
	for unit := range events.Each(holds) {
		isHeld[unit] = true
	}
	for _, told := range digests.Units {
		if !isHeld[told.Unit] {
			continue
		}
		if known, more := f.Units[told.Unit]; more && known != told.Digest {
			told.Digest = ""
		}
		f.Units[told.Unit] = told.Digest
	}
}

// digest is that of the model; empty where not all units have one that all holders told.
func (f *finals) digest(units int) string {
	var list strings.Builder
	for unit := range units {
		if f.Units[unit] == "" {
			return ""
		}
		list.WriteString(f.Units[unit] + "\n")
	}
	return events.Digest([]byte(list.String()))
}

// differ are the units of which holders told different digests.
func (f *finals) differ() []events.Range {
	var units []int
	for unit, digest := range f.Units {
		if digest == "" {
			units = append(units, unit)
		}
	}
	slices.Sort(units)
	return rangesOf(units)
}

// digested hears that training is complete for a node. Digests that were told under an older plan have no effect: the newer plan may have
// gone back. Nor have digests of another step than the job's last, if that is known.
func (m *Machine) digested(digests events.Digests) {
	if !digests.Final {
		m.madeLast(digests.Node, digests.Generation, digests.Step)
		return
	}
	if m.state.Plan == nil || digests.Generation != m.state.generation() {
		return
	}
	if last := m.state.Job.Steps; last > 0 && digests.Step != last {
		return
	}
	member, isIn := m.state.Plan.Member(digests.Node)
	if !isIn || !m.isStill(member) || digests.Incarnation != "" && digests.Incarnation != member.Incarnation {
		return
	}
	if m.state.Finals == nil {
		m.state.Finals = &finals{Nodes: map[string]bool{}, Units: map[int]string{}}
	}
	m.state.Finals.take(digests, m.state.Plan.UnitsOf(digests.Node))
}

// isMade reports whether the job is done.
func (m *Machine) isMade() bool { return len(m.made()) > 0 }

// conclude drops all that somebody waits for: the job has ended, which was logged last at a time.
func (m *Machine) conclude(ended, told time.Time) {
	m.state.Ended, m.state.EndTold = ended, told
	m.state.Negotiation, m.state.Pending, m.state.Finals = nil, nil, nil
	m.state.Hold = hold{Ever: m.state.Hold.Ever}
	m.state.Stopping, m.state.Stop, m.state.Poison = "", nil, poison{}
	clear(m.state.Joiners)
	clear(m.state.Deadlines)
}

// completed hears its own word that the job is done. One that has lost its memory learns so.
func (m *Machine) completed(end events.JobEnd) {
	if m.state.Reset != nil || end.Generation < m.state.generation() {
		return // of training that was given up since
	}
	m.state.Complete = &end
	m.conclude(m.cause.Time, m.cause.Logged)
}

// retellAfter is after how long the end is told again. The log forgets what is older than three days, and the end is to be known
// for as long as the cluster is there; for two of them the negotiator may be away.
const retellAfter = events.EventAge / 3

// retell says once more that the job is complete, has stopped or is to begin anew, and since when, before the log forgets it. It goes by
// the time, not by the last event and the ticks since: for days nobody may say anything, and a restart forgets the ticks.
func (m *Machine) retell(now time.Time) []events.Event {
	kind, payload, how := events.TrainingCompleted, events.Payload(m.state.Complete), "complete-"
	switch {
	case m.state.Reset != nil:
		kind, payload, how = events.TrainingReset, m.state.Reset, "reset-"
	case m.state.Complete == nil:
		kind, payload, how = events.TrainingStopped, m.state.Stop, "stopped-"
	}
	if m.state.EndTold.IsZero() { // a build before November 2026 remembered that the job had ended, and not when
		m.state.Ended, m.state.EndTold = m.state.Heard, m.state.Heard.Add(-retellAfter)
		if m.state.Stop != nil && !m.state.Stopped.IsZero() {
			m.state.Ended = m.state.Stopped // else who is started on purpose now would be taken for one that was restarting then
		}
	}
	if now.Sub(m.state.EndTold) < retellAfter || m.retold.Equal(m.state.EndTold) {
		return nil
	}
	m.retold = m.state.EndTold
	reason := how + m.state.EndTold.Format(time.RFC3339Nano)
	return []events.Event{m.speaker.First(m.state.Ended, reason, kind, m.settings.Cluster, payload)}
}

// refuseAll tells each node whose request waits that nothing comes of it any more.
func (m *Machine) refuseAll() {
	told := map[string]bool{} // one cause says one refusal to a node
	for _, change := range m.state.Pending {
		if urgent(change) || told[change.Node] {
			continue
		}
		told[change.Node] = true
		refusal := refusalOf(change.Kind, change.Node, m.isComplete())
		if joiner := m.state.Joiners[change.Node]; joiner != nil {
			refusal.Incarnation = joiner.Incarnation
		}
		refusal.Complete = true
		m.refuse(refusal)
	}
}

// isComplete says why a cluster whose job is done grants nothing.
func (m *Machine) isComplete() string {
	return fmt.Sprintf("this cluster's job is complete: step %d was made. To begin another one here: reknit cluster reset",
		m.state.Complete.Step)
}

// afterwards says what the machine does about each kind of event once the job is done: it refuses what is asked for. All
// else, such as the end of nodes, has no effect.
var afterwards = events.Handlers[*Machine]{
	events.JoinRequested: handling(func(m *Machine, join events.Join) {
		m.refuseAfterwards(events.Refusal{
			Node: join.Node, Refused: events.ChangeJoin, Incarnation: join.Incarnation,
			OtherJob: m.saysOther(join.Job) != "", // else what it came to train is trained
		})
	}),
	events.TrainingCompleted:  handling((*Machine).completed),
	events.TrainingReset:      handling((*Machine).begunAnew),
	events.ResetRequested:     (*Machine).asked,
	events.StopRequested:      (*Machine).asked,
	events.ReleaseRequested:   (*Machine).asked,
	events.NegotiationOverdue: handling((*Machine).answer),
	events.LeaveRequested: handling(func(m *Machine, leave events.Leave) {
		m.refuseAfterwards(events.Refusal{Node: leave.Node, Refused: events.ChangeLeave})
	}),
	events.ConnectRequested: handling(func(m *Machine, request events.LinkRequest) {
		m.refuseAfterwards(events.Refusal{Node: request.From, Refused: events.ChangeConnect})
	}),
	events.DisconnectRequested: handling(func(m *Machine, request events.LinkRequest) {
		m.refuseAfterwards(events.Refusal{Node: request.From, Refused: events.ChangeDisconnect})
	}),
}

func (m *Machine) refuseAfterwards(refusal events.Refusal) {
	refusal.Reason, refusal.Complete = m.isComplete(), true
	m.refuse(refusal)
}

// isStill reports whether a node that the plan in force names is still the one that it names, and has a place.
func (m *Machine) isStill(member events.Member) bool {
	active := m.state.Members[member.Node]
	return active != nil && active.Incarnation == member.Incarnation && m.placed(member.Node)
}

// made returns the nodes that train under the plan in force, by name, once all of them have told that training is complete
// after one number of steps. It returns none where they do not hold all units: what the dead have trained is trained again.
func (m *Machine) made() (nodes []string) {
	if m.state.Finals == nil || m.state.Plan == nil {
		return nil
	}
	told := m.state.Finals.Nodes
	for _, member := range m.state.Plan.Nodes {
		if !m.isStill(member) {
			continue
		}
		if !told[member.Node] {
			return nil // as for all finals but the last: nothing else is looked at
		}
		nodes = append(nodes, member.Node)
	}
	if !m.haveAll(nodes) {
		return nil
	}
	slices.Sort(nodes)
	return nodes
}

// haveAll reports whether nodes hold all units under the plan in force.
func (m *Machine) haveAll(nodes []string) bool {
	held := make([]bool, m.state.Job.Units())
	for _, node := range nodes {
		for unit := range events.Each(m.state.Plan.UnitsOf(node)) {
			held[unit] = true
		}
	}
	return !slices.Contains(held, false)
}
