// Package machine is the restorer's deterministic part: it maps a proposed plan onto the nodes and what they hold, and
// watches the transfers until every layer is verified at its new holder.
package machine

import (
	"encoding/json"
	"time"

	"github.com/reknit/reknit/events"
)

// Machine restores one cluster.
type Machine struct {
	speaker  events.Speaker
	settings Settings
	state    state
}

// state is what the machine remembers between two requests.
type state struct {
	Planned *planned    `json:"planned,omitempty"` // restored last; not in force yet
	Watch   *watch      `json:"watch,omitempty"`   // the transfer under way
	Compare *comparison `json:"compare,omitempty"` // of the replicas of the plan in force
	// Keeping is of the last plans that were in force, the newest first.
	Keeping []*keeping `json:"keeping,omitempty"`
	// Newest is the newest complete snapshot of each tier.
	Newest map[string]named `json:"newest,omitempty"`
	// Starts is how long receivers waited for the first byte, by giver.
	Starts map[string][]begin `json:"starts,omitempty"`
}

// planned is who will hold what once a negotiation is committed.
type planned struct {
	Negotiation string      `json:"negotiation"`
	Compare     *comparison `json:"compare"`
	Keeping     *keeping    `json:"keeping,omitempty"`
}

// New returns a machine that knows nothing yet.
func New(cluster string, settings Settings) *Machine {
	return &Machine{speaker: events.Speaker{Source: "/restorer", Cluster: cluster}, settings: settings}
}

var handlers = events.Handlers[*Machine]{
	events.RestorationAsked:    events.Handling((*Machine).asked),
	events.Scheduled:           events.Handling((*Machine).scheduled),
	events.ShardOffered:        events.Handling((*Machine).offered),
	events.ShardReceived:       events.Handling((*Machine).received),
	events.NegotiationOverdue:  events.Handling((*Machine).overdue),
	events.Committed:           events.Handling((*Machine).committed),
	events.Aborted:             events.Handling((*Machine).aborted),
	events.TrainingDigested:    events.Handling((*Machine).digested),
	events.SnapshotWritten:     events.Handling((*Machine).wrote),
	events.WithdrawalRequested: events.Handling((*Machine).withdraws),
}

// Hears returns the kinds of event the machine handles.
func (m *Machine) Hears() []events.Kind { return handlers.Kinds() }

// Handle takes one event and returns what is to be said because of it.
func (m *Machine) Handle(event events.Event) ([]events.Event, error) {
	return handlers.Handle(m, event)
}

// Tick does nothing: the negotiator keeps the deadlines.
func (m *Machine) Tick(time.Time) []events.Event { return nil }

// Snapshot returns the machine's memory.
func (m *Machine) Snapshot() ([]byte, error) { return json.Marshal(m.state) }

// Restore replaces the machine's memory by that of a snapshot.
func (m *Machine) Restore(data []byte) error {
	m.state = state{}
	return json.Unmarshal(data, &m.state)
}

func (m *Machine) asked(cause events.Event, request events.RestorationRequest) []events.Event {
	m.forgetOthers(&request)
	restoration, err := m.settings.restore(request, m.state.Starts)
	if err != nil {
		return []events.Event{m.speaker.Say(cause, events.RestorationRefused, request.Negotiation,
			&events.Failure{Negotiation: request.Negotiation, Reason: err.Error()})}
	}
	m.age(&request, &restoration.Plan)
	m.state.Planned = &planned{request.Negotiation, newComparison(&restoration.Plan, m.state.Compare), newKeeping(&restoration.Plan)}
	return []events.Event{m.speaker.Say(cause, events.RestorationPlanned, request.Negotiation, &restoration)}
}
