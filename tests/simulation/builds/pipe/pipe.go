// Package pipe is what two builds of Reknit say to one another over a pipe: calls to machines, and what these answer. It is compiled in
// both trees, and names no method of a machine.
package pipe

import (
	"encoding/json"
	"fmt"

	agent "github.com/reknit/reknit/services/agent/machine"
	monitor "github.com/reknit/reknit/services/monitor/machine"
	negotiator "github.com/reknit/reknit/services/negotiator/machine"
	planner "github.com/reknit/reknit/services/planner/machine"
	restorer "github.com/reknit/reknit/services/restorer/machine"
)

// Call is one to a method of a machine. It makes a machine of its only argument, the settings, where Kind is said.
type Call struct {
	Kind      string // a service, or "agent"
	Machine   int    // in the order in which they were made, from zero
	Method    string
	Arguments []json.RawMessage
}

// Answer is what a method returned.
type Answer struct {
	Results []json.RawMessage
	Missing bool   // this build's machine has no such method
	Refused string // why the event is none of this build's catalogue; empty: it is one
	Panic   string // what the machine panicked with; empty: it did not
}

// Tagged is a value of an interface with the name of its type.
type Tagged struct {
	Type  string
	Value json.RawMessage
}

// Planner are a planner's settings, of which the others cannot travel.
type Planner struct {
	Cluster       string
	MinReplicas   int
	SwitchSeconds float64
}

// newMachine returns a machine of this build.
func newMachine(kind string, settings json.RawMessage) (any, error) {
	switch kind {
	case "monitor":
		return made(settings, monitor.New)
	case "negotiator":
		return made(settings, negotiator.New)
	case "planner":
		return made(settings, func(s Planner) *planner.Machine {
			return planner.New(planner.Settings{Cluster: s.Cluster, MinReplicas: s.MinReplicas, SwitchSeconds: s.SwitchSeconds})
		})
	case "restorer":
		return made(settings, func(cluster string) *restorer.Machine { return restorer.New(cluster, restorer.Settings{}) })
	case "agent":
		return made(settings, agent.New)
	}
	return nil, fmt.Errorf("kind: expected a service or agent, got %q", kind)
}

func made[S, M any](data json.RawMessage, of func(S) M) (any, error) {
	var settings S
	if err := json.Unmarshal(data, &settings); err != nil {
		return nil, fmt.Errorf("settings: %w", err)
	}
	return of(settings), nil
}
