package builds

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/reknit/reknit/events"
	agent "github.com/reknit/reknit/services/agent/machine"
	"github.com/reknit/reknit/services/agent/retention"
	"github.com/reknit/reknit/tests/simulation/builds/pipe"
)

// Agent is the machine of an agent.
type Agent struct{ machine }

// Agent makes the machine of an agent.
func (b *Build) Agent(settings agent.Settings) *Agent { return &Agent{b.newMachine("agent", settings)} }

var actions = []any{
	agent.Say{}, agent.Train{}, agent.Abandon{}, agent.Stuck{}, agent.Awaited{}, agent.Waits{}, agent.Late{}, agent.Leaving{}, agent.Stays{},
	agent.Rejoin{}, agent.Look{}, agent.Reread{}, agent.End{}, agent.Measure{}, agent.Forget{}, agent.Tell{}, agent.Capture{}, agent.Adopt{},
	agent.PreCopy{}, agent.Open{}, agent.Close{}, agent.Export{}, agent.Fetch{},
}

func untagged(tagged []json.RawMessage) (wanted []agent.Action) {
	for _, one := range tagged {
		action, err := pipe.Untag(one, actions)
		if err != nil {
			panic(fmt.Errorf("of the other build: %w", err))
		}
		wanted = append(wanted, action.(agent.Action))
	}
	return wanted
}

// wants calls a method that returns actions.
func (a *Agent) wants(method string, arguments ...any) []agent.Action {
	var tagged []json.RawMessage
	if _, err := a.call(method, arguments, &tagged); err != nil {
		panic(err)
	}
	return untagged(tagged)
}

// gives calls a method of one result that can fail by no event.
func gives[T any](a *Agent, method string, arguments ...any) (result T) {
	if _, err := a.call(method, arguments, &result); err != nil {
		panic(err)
	}
	return result
}

// Hears and the methods below are those of the machine.
func (a *Agent) Hears() []events.Kind { return gives[[]events.Kind](a, "Hears") }

func (a *Agent) Handle(event events.Event) ([]agent.Action, error) {
	var tagged []json.RawMessage
	var text *string
	if _, err := a.call("Handle", []any{event}, &tagged, &text); err != nil {
		return nil, err
	}
	return untagged(tagged), failure(text)
}

func (a *Agent) Join(now time.Time, incarnation string, back bool) []agent.Action {
	return a.wants("Join", now, incarnation, back)
}
func (a *Agent) Boundary(done uint64) []agent.Action { return a.wants("Boundary", done) }
func (a *Agent) Broken(now time.Time, reason string) []agent.Action {
	return a.wants("Broken", now, reason)
}
func (a *Agent) Completed(now time.Time, step uint64, seconds float64) []agent.Action {
	return a.wants("Completed", now, step, seconds)
}
func (a *Agent) Digested(now time.Time, step uint64, final bool, units []events.UnitDigest) events.Event {
	return gives[events.Event](a, "Digested", now, step, final, units)
}
func (a *Agent) DigestedAgain(now time.Time) []agent.Action { return a.wants("DigestedAgain", now) }
func (a *Agent) Exited(now time.Time, reason string, exitCode int) []agent.Action {
	return a.wants("Exited", now, reason, exitCode)
}

// Ignores is false: builds of before December 2026 hear everybody.
func (a *Agent) Ignores(events.Event) bool { return false }

func (a *Agent) Frozen(holdings []events.Holding) []agent.Action { return a.wants("Frozen", holdings) }
func (a *Agent) Hung(now time.Time) []agent.Action               { return a.wants("Hung", now) }
func (a *Agent) Late() []agent.Action                            { return a.wants("Late") }
func (a *Agent) Leave(now time.Time, reason string, deadline time.Duration) []agent.Action {
	return a.wants("Leave", now, reason, deadline)
}
func (a *Agent) Replaced() []agent.Action               { return a.wants("Replaced") }
func (a *Agent) Forgotten(reason string) []agent.Action { return a.wants("Forgotten", reason) }
func (a *Agent) Snapshot() agent.Snapshot               { return gives[agent.Snapshot](a, "Snapshot") }

func (a *Agent) Done(result agent.Result) []agent.Action {
	tagged, err := pipe.Tag(result)
	if err != nil {
		panic(err)
	}
	return a.wants("Done", tagged)
}

// Failed is Exited to a build whose agent ended with its script.
func (a *Agent) Failed(now time.Time, reason string, exitCode int, inStep, keeps bool) []agent.Action {
	var tagged []json.RawMessage
	missing, err := a.call("Failed", []any{now, reason, exitCode, inStep, keeps}, &tagged)
	if err != nil {
		panic(err)
	}
	if missing {
		return a.Exited(now, reason, exitCode)
	}
	return untagged(tagged)
}

// Written returns an event without a kind where the other build's agents say nothing of what they wrote.
func (a *Agent) Written(now time.Time, tier string, id retention.ID, units []events.Range) events.Event {
	return gives[events.Event](a, "Written", now, tier, id, units)
}

// Unwritten returns an event without a kind where the other build's agents say nothing of what they could not write, and so does Resumes.
func (a *Agent) Unwritten(now time.Time, tier string, id retention.ID, units []events.Range, finding, reason string) events.Event {
	return gives[events.Event](a, "Unwritten", now, tier, id, units, finding, reason)
}

func (a *Agent) Resumes(now time.Time, tier string, id retention.ID, units []events.Range) events.Event {
	return gives[events.Event](a, "Resumes", now, tier, id, units)
}

// Fate tells that a part may go where the other build's agents do not ask.
func (a *Agent) Fate(tier string, id retention.ID) (fate agent.Fate) {
	missing, err := a.call("Fate", []any{tier, id}, &fate)
	if err != nil {
		panic(err)
	}
	if missing {
		return agent.Withdrawn
	}
	return fate
}

// Withdraws returns an event without a kind where the other build's agents do not ask.
func (a *Agent) Withdraws(now time.Time, tier string, id retention.ID, units []events.Range) events.Event {
	return gives[events.Event](a, "Withdraws", now, tier, id, units)
}
