// Package machine is the planner's deterministic part: a request in, a proposal out. The request holds all there is to
// know, so the machine remembers nothing.
package machine

import (
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/planner/policy"
)

// Settings are the planner's knobs.
type Settings struct {
	Cluster       string
	MinReplicas   int     // holders that every layer should have
	SwitchSeconds float64 // a switch of plans that moves nothing
}

// Machine plans for one cluster.
type Machine struct {
	settings Settings
	speaker  events.Speaker
}

// New returns a machine.
func New(settings Settings) *Machine {
	return &Machine{settings: settings, speaker: events.Speaker{Source: "/planner", Cluster: settings.Cluster}}
}

// Hears returns the kinds of event the machine handles.
func (m *Machine) Hears() []events.Kind { return []events.Kind{events.PlanRequested} }

// Handle answers a request with the best plan and all that were weighed, or with why there is none.
func (m *Machine) Handle(event events.Event) ([]events.Event, error) {
	request, err := events.Open[events.PlanRequest](event)
	if err != nil {
		return nil, err
	}
	candidates, err := policy.Choose(m.situation(request))
	if err != nil {
		return []events.Event{m.speaker.Say(event, events.PlanRefused, request.Negotiation,
			&events.Failure{Negotiation: request.Negotiation, Reason: err.Error()})}, nil
	}
	return []events.Event{m.speaker.Say(event, events.PlanProposed, request.Negotiation, proposal(request, candidates))}, nil
}

// Tick does nothing.
func (m *Machine) Tick(time.Time) []events.Event { return nil }

// Snapshot returns nothing: there is no memory.
func (m *Machine) Snapshot() ([]byte, error) { return []byte("{}"), nil }

// Restore takes nothing.
func (m *Machine) Restore([]byte) error { return nil }
