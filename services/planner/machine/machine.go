// Package machine is the planner's deterministic part: a request in, a proposal out. The request holds all there is to
// know, so the machine remembers nothing.
package machine

import (
	"errors"
	"slices"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/planner/policy"
)

// Settings are the planner's knobs.
type Settings struct {
	Cluster       string
	Policy        policy.Policy // zero: adaptive
	MinReplicas   int           // holders that every layer should have
	SwitchSeconds float64       // a switch of plans that moves nothing
	// Ahead returns what the policy answers to a situation where that was computed ahead: faster, never other. Nil: nothing
	// was.
	Ahead func(policy.Canonical) ([]policy.Candidate, bool)
}

// Machine plans for one cluster.
type Machine struct {
	settings Settings
	speaker  events.Speaker
}

// New returns a machine.
func New(settings Settings) *Machine {
	if settings.Policy.Propose == nil {
		settings.Policy = policy.Adaptive
	}
	if settings.Ahead == nil {
		settings.Ahead = func(policy.Canonical) ([]policy.Candidate, bool) { return nil, false }
	}
	return &Machine{settings: settings, speaker: events.Speaker{Source: "/planner", Cluster: settings.Cluster}}
}

// Hears returns the kinds of event the machine handles.
func (m *Machine) Hears() []events.Kind { return []events.Kind{events.PlanRequested} }

// Handle answers a request with the best plan and all that were weighed, with how long to wait, or with why there is no plan.
func (m *Machine) Handle(event events.Event) ([]events.Event, error) { return m.Answer(event, nil) }

// Answer is Handle with what plug-ins replied to the same request; nil: there are none. Replies are taken when our own
// search is over, so that both can go on side by side.
func (m *Machine) Answer(event events.Event, replies func() []Reply) ([]events.Event, error) {
	request, err := events.Open[events.PlanRequest](event)
	if err != nil {
		return nil, err
	}
	proposal, err := m.Plan(request, replies)
	var deferred Deferred
	switch {
	case err == nil:
		return []events.Event{m.speaker.Say(event, events.PlanProposed, request.Negotiation, proposal)}, nil
	case errors.As(err, &deferred):
		return []events.Event{m.speaker.Say(event, events.PlanDeferred, request.Negotiation, &deferred.Deferral)}, nil
	}
	return []events.Event{m.speaker.Say(event, events.PlanRefused, request.Negotiation,
		&events.Failure{Negotiation: request.Negotiation, Reason: err.Error()})}, nil
}

// Deferred is why there is no plan where waiting is better than any.
type Deferred struct{ events.Deferral }

func (d Deferred) Error() string { return d.Reason }

// Plan is the best plan for a valid request, or why there is none, which may be that waiting is better: Deferred.
func (m *Machine) Plan(request events.PlanRequest, replies func() []Reply) (*events.Proposal, error) {
	s := m.settings.Situation(request)
	canonical := s.Canonical()
	candidates, found := m.settings.Ahead(canonical)
	var reason error
	if !found {
		if candidates, reason = m.settings.Policy.Answer(canonical.Situation); reason != nil {
			_, reason = m.settings.Policy.Answer(s) // the same reason, with names
		}
	}
	var judged judgement
	if replies != nil {
		judged = judge(request, s, replies())
	}
	all, err := policy.Weigh(s, slices.Concat(candidates, m.settings.Policy.Wait(s), judged.candidates), reason)
	if err != nil {
		return nil, err
	}
	best, considered := all[0], append(judged.doubted(weighed(all)), judged.refused...)
	if best.Policy == policy.Waiting {
		return nil, Deferred{deferral(request, considered)}
	}
	if _, isForeign := judged.claims[best.Policy]; !isForeign {
		best = canonical.Restored(best)
	}
	return proposal(request, best, considered), nil
}

// Tick does nothing.
func (m *Machine) Tick(time.Time) []events.Event { return nil }

// Snapshot returns nothing: there is no memory.
func (m *Machine) Snapshot() ([]byte, error) { return []byte("{}"), nil }

// Restore takes nothing.
func (m *Machine) Restore([]byte) error { return nil }
