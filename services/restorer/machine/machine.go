// Package machine is the restorer's deterministic part: it maps a proposed plan onto the nodes and what they hold, and
// watches the transfers until every layer is verified at its new holder.
package machine

import (
	"encoding/json"
	"time"

	"github.com/reknit/reknit/events"
)

// Machine restores one cluster. Between two requests it remembers only the transfer under way.
type Machine struct {
	speaker events.Speaker
	watch   *watch
}

// New returns a machine that knows nothing yet.
func New(cluster string) *Machine {
	return &Machine{speaker: events.Speaker{Source: "/restorer", Cluster: cluster}}
}

var handlers = events.Handlers[*Machine]{
	events.RestorationAsked: events.Handling((*Machine).asked),
	events.Scheduled:        events.Handling((*Machine).scheduled),
	events.ShardOffered:     events.Handling((*Machine).offered),
	events.ShardReceived:    events.Handling((*Machine).received),
	events.Committed:        events.Handling((*Machine).committed),
	events.Aborted:          events.Handling((*Machine).aborted),
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
func (m *Machine) Snapshot() ([]byte, error) { return json.Marshal(m.watch) }

// Restore replaces the machine's memory by that of a snapshot.
func (m *Machine) Restore(data []byte) error {
	m.watch = nil
	return json.Unmarshal(data, &m.watch)
}

func (m *Machine) asked(cause events.Event, request events.RestorationRequest) []events.Event {
	restoration, err := Restore(request)
	if err != nil {
		return []events.Event{m.speaker.Say(cause, events.RestorationRefused, request.Negotiation,
			&events.Failure{Negotiation: request.Negotiation, Reason: err.Error()})}
	}
	return []events.Event{m.speaker.Say(cause, events.RestorationPlanned, request.Negotiation, &restoration)}
}
