package machine

import (
	"cmp"
	"slices"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/consent"
)

// objection returns why the node's institution does not take part in the changes of an opening, and who is not to join;
// empty where it does. A node that leaves objects to nothing.
func (m *Machine) objection(event events.Event, opening events.Opening) (reason string, refuses []string) {
	if m.settings.Consent == (consent.Policy{}) {
		return "", nil // nobody need look through a thousand members
	}
	if leaves(opening.Changes, m.settings.Node) {
		return "", nil
	}
	var joining []consent.Node
	question := consent.Question{At: event.Logged, Bytes: m.heldBytes()}
	for _, member := range opening.Members {
		if leaves(opening.Changes, member.Node) {
			continue
		}
		node := consent.Node{Name: member.Node, Site: member.Site}
		question.Members = append(question.Members, node)
		if change := joins(opening.Changes, member.Node); change != nil && member.Node != m.settings.Node {
			if m.settings.Secured {
				node = consent.Node{Name: member.Node, Proven: true, Institution: change.Institution}
			}
			joining = append(joining, node)
		}
	}
	for _, node := range joining {
		question.Joining = []consent.Node{node}
		if objection := m.settings.Consent.Objection(question); objection != "" {
			reason, refuses = cmp.Or(reason, objection), append(refuses, node.Name)
		}
	}
	return reason, refuses
}

// joins returns the change by which a node joins; nil: it does not.
func joins(changes []events.Change, node string) *events.Change {
	at := slices.IndexFunc(changes, func(change events.Change) bool {
		return change.Kind == events.ChangeJoin && change.Node == node
	})
	if at < 0 {
		return nil
	}
	return &changes[at]
}

// heldBytes is how long the units are that the node trains under the newest plan it knows.
func (m *Machine) heldBytes() (bytes int64) {
	lengths := m.settings.Job.UnitBytes()
	for _, holding := range m.current() {
		for _, length := range lengths[min(holding.Units.First, len(lengths)):min(holding.Units.End, len(lengths))] {
			bytes += length
		}
	}
	return bytes
}
