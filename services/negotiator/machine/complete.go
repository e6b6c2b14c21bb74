package machine

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/reknit/reknit/events"
)

// finals are what nodes told of the end of training under the plan in force.
type finals struct {
	Step  uint64          `json:"step"`  // the greatest that was told
	Nodes map[string]bool `json:"nodes"` // for whom training is complete
	Units map[int]string  `json:"units"` // digests that were told; empty where holders told different ones
}

func (f *finals) take(digests events.Digests) {
	f.Step, f.Nodes[digests.Node] = max(f.Step, digests.Step), true
	for _, told := range digests.Units {
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

// digested hears that training is complete for a node. What was told under an older plan has no effect: the newer one may
// have gone back.
func (m *Machine) digested(cause events.Event, digests events.Digests) []events.Event {
	if !digests.Final || digests.Generation != m.state.generation() || !m.placed(digests.Node) {
		return nil
	}
	if m.state.Finals == nil {
		m.state.Finals = &finals{Nodes: map[string]bool{}, Units: map[int]string{}}
	}
	m.state.Finals.take(digests)
	return m.complete(cause)
}

// complete says that the job is done, once it is, and ends all that is asked for or under way.
func (m *Machine) complete(cause events.Event) []events.Event {
	if !m.allMade() {
		return nil
	}
	finals := m.state.Finals
	m.state.Complete = &events.JobEnd{
		Generation: m.state.generation(), Step: finals.Step, Nodes: slices.Sorted(maps.Keys(finals.Nodes)),
		Digest: finals.digest(m.state.Job.Units()),
	}
	var said []events.Event
	refused := m.refuseAll(cause)
	m.state.Pending = nil
	if m.state.Negotiation != nil {
		said = m.abort(cause, "the job is complete", func(events.Event) []events.Event { return nil })
	}
	m.state.Hold, m.state.Finals = hold{Ever: m.state.Hold.Ever}, nil
	clear(m.state.Joiners)
	clear(m.state.Deadlines)
	end := m.speaker.Say(cause, events.TrainingCompleted, m.settings.Cluster, m.state.Complete)
	return append(append(said, end), refused...)
}

// refuseAll tells each node whose request waits that nothing comes of it any more.
func (m *Machine) refuseAll(cause events.Event) []events.Event {
	var said []events.Event
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
		said = append(said, m.refuse(cause, refusal)...)
	}
	return said
}

// isComplete says why a cluster whose job is done grants nothing.
func (m *Machine) isComplete() string {
	return fmt.Sprintf("this cluster's job is complete: step %d was made; a new job begins with another cluster", m.state.Complete.Step)
}

// afterwards says what the machine does about each kind of event once the job is done: it refuses what is asked for. All
// else, such as the end of nodes, has no effect.
var afterwards = events.Handlers[*Machine]{
	events.JoinRequested: events.Handling(func(m *Machine, cause events.Event, join events.Join) []events.Event {
		return m.refuseAfterwards(cause, events.Refusal{Node: join.Node, Refused: events.ChangeJoin, Incarnation: join.Incarnation})
	}),
	events.LeaveRequested: events.Handling(func(m *Machine, cause events.Event, leave events.Leave) []events.Event {
		return m.refuseAfterwards(cause, events.Refusal{Node: leave.Node, Refused: events.ChangeLeave})
	}),
	events.ConnectRequested: events.Handling(func(m *Machine, cause events.Event, request events.LinkRequest) []events.Event {
		return m.refuseAfterwards(cause, events.Refusal{Node: request.From, Refused: events.ChangeConnect})
	}),
	events.DisconnectRequested: events.Handling(func(m *Machine, cause events.Event, request events.LinkRequest) []events.Event {
		return m.refuseAfterwards(cause, events.Refusal{Node: request.From, Refused: events.ChangeDisconnect})
	}),
}

func (m *Machine) refuseAfterwards(cause events.Event, refusal events.Refusal) []events.Event {
	refusal.Reason, refusal.Complete = m.isComplete(), true
	return m.refuse(cause, refusal)
}

// allMade reports whether all living nodes that train under the plan in force have made the last step, and the dead have
// left nothing that nobody of them holds.
func (m *Machine) allMade() bool {
	if m.state.Finals == nil || m.state.Plan == nil {
		return false
	}
	for _, member := range m.state.Plan.Nodes {
		active := m.state.Members[member.Node]
		lives := active != nil && active.Incarnation == member.Incarnation
		if lives && m.placed(member.Node) && !m.state.Finals.Nodes[member.Node] {
			return false
		}
	}
	made := make([]bool, m.state.Job.Units())
	for node := range m.state.Finals.Nodes {
		for unit := range events.Each(m.state.Plan.UnitsOf(node)) {
			made[unit] = true
		}
	}
	return !slices.Contains(made, false)
}
