// Package machine is the planner's deterministic part: a request in, a proposal out. The request holds all there is to
// know, so the machine remembers nothing.
package machine

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/planner/policy"
	"github.com/reknit/reknit/services/planner/search"
)

// Settings are the planner's knobs.
type Settings struct {
	Cluster     string
	Policy      policy.Policy // zero: adaptive
	MinReplicas int           // holders that every layer should have
	// A change costs this besides its transfer, until one was measured.
	SwitchSeconds  float64 // one that moves nothing
	RestartSeconds float64 // one that moves state
	Slowdown       float64 // how many times as long a step may take for a node that joins; zero: policy.UsualSlowdown
	// Find answers as search.Find does, which has it if this is nil.
	Find func(problem search.Problem, most int) (search.Result, error)
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
	return &Machine{settings: settings, speaker: events.Speaker{Source: "/planner", Cluster: settings.Cluster}}
}

// Hears returns the kinds of event the machine handles.
func (m *Machine) Hears() []events.Kind { return []events.Kind{events.PlanRequested} }

// Handle answers a request with the best plan and all that were weighed, with how long to wait, or with why there is no
// plan.
func (m *Machine) Handle(event events.Event) ([]events.Event, error) {
	question, err := m.Hear(event)
	if err != nil {
		return nil, err
	}
	return m.Answer(event, question, m.Search(question), nil), nil
}

// Question is a request as policies look at it.
type Question struct {
	Canonical policy.Canonical // equal questions have equal answers
	request   events.PlanRequest
	situation policy.Situation
	excess    error // why there is nothing to search: too many micro-batches
}

// Hear reads a request.
func (m *Machine) Hear(event events.Event) (Question, error) {
	request, err := events.Open[events.PlanRequest](event)
	if err != nil {
		return Question{}, err
	}
	return m.question(request), nil
}

func (m *Machine) question(request events.PlanRequest) Question {
	situation := m.settings.Situation(request)
	return Question{situation.Canonical(), request, situation, excess(request, situation.MicroBatches)}
}

// excess tells of more micro-batches than a plan may have, as a batch that follows the nodes can: a job's own are its rule's.
func excess(request events.PlanRequest, microBatches int) error {
	if microBatches <= events.MostMicroBatches {
		return nil
	}
	return fmt.Errorf("batchRule.samplesPerNode: expected at most %d micro-batches a step, got %d of %d nodes",
		events.MostMicroBatches, microBatches, len(request.Nodes))
}

// Found is what the policy proposes for the canonical situation of a question, or another in its place, and why there is
// nothing.
type Found struct {
	Candidates []policy.Candidate
	Reason     error
}

// Search asks the policy. A caller that has its answer already need not search.
func (m *Machine) Search(question Question) Found {
	if question.excess != nil {
		return Found{nil, question.excess}
	}
	candidates, reason := m.settings.Policy.Answer(question.Canonical.Situation)
	if len(candidates) == 0 { // the same reason, with names
		_, reason = m.settings.Policy.Answer(question.situation)
	}
	return Found{candidates, reason}
}

// Answer says what Handle says, given what was found for the question of the event and what plug-ins replied to it.
func (m *Machine) Answer(event events.Event, question Question, found Found, replies []Reply) []events.Event {
	negotiation := question.request.Negotiation
	proposal, err := m.weigh(question, found, replies)
	var deferred Deferred
	switch {
	case err == nil:
		return []events.Event{m.speaker.Say(event, events.PlanProposed, negotiation, proposal)}
	case errors.As(err, &deferred):
		return []events.Event{m.speaker.Say(event, events.PlanDeferred, negotiation, &deferred.Deferral)}
	}
	failure := events.Failure{Negotiation: negotiation, Reason: err.Error()}
	return []events.Event{m.speaker.Say(event, events.PlanRefused, negotiation, &failure)}
}

// Deferred is why there is no plan where waiting is better than any.
type Deferred struct{ events.Deferral }

func (d Deferred) Error() string { return d.Reason }

// Plan is the best plan for a valid request, or why there is none, which may be that waiting is better: Deferred.
func (m *Machine) Plan(request events.PlanRequest, replies ...Reply) (*events.Proposal, error) {
	question := m.question(request)
	return m.weigh(question, m.Search(question), replies)
}

// weigh takes the best of what was found, of waiting and of what plug-ins propose.
func (m *Machine) weigh(question Question, found Found, replies []Reply) (*events.Proposal, error) {
	if question.excess != nil {
		return nil, question.excess
	}
	s, judged := question.situation, judge(question.request, question.situation, replies)
	candidates := slices.Concat(found.Candidates, m.settings.Policy.Wait(s), judged.candidates)
	all, err := policy.Weigh(s, candidates, found.Reason)
	if err != nil {
		return nil, err
	}
	best, considered := all[0], append(judged.doubted(weighed(all)), judged.refused...)
	if len(found.Candidates) > 0 {
		for _, silent := range m.settings.Policy.Unanswered(s, found.Candidates) {
			considered = append(considered, events.Candidate{Policy: silent.Policy, Rejected: events.Shorten(silent.Reason.Error(), 512)})
		}
	}
	if best.Policy == policy.Waiting {
		return nil, Deferred{deferral(question.request, considered)}
	}
	if _, isForeign := judged.claims[best.Policy]; !isForeign {
		best = question.Canonical.Restored(best)
	}
	return proposal(question.request, s, best, considered), nil
}

// Tick does nothing.
func (m *Machine) Tick(time.Time) []events.Event { return nil }

// Snapshot returns nothing: there is no memory.
func (m *Machine) Snapshot() ([]byte, error) { return []byte("{}"), nil }

// Restore takes nothing.
func (m *Machine) Restore([]byte) error { return nil }
