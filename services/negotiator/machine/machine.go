// Package machine is the negotiator's deterministic part: it hears facts, requests, consents and proposals, decides
// whether and when a change happens, and commits plans. It has no clock, no network and no log.
package machine

import (
	"maps"
	"slices"
	"time"

	"github.com/reknit/reknit/events"
)

// Settings are the negotiator's knobs.
type Settings struct {
	Cluster       string
	StartNodes    int           // generation 1 waits for that many nodes
	AnswerTimeout time.Duration // a member that does not consent or promise for so long is given up
	TransferTime  time.Duration // a transfer that takes longer is given up and planned anew
	FailuresPrior float64       // failures per node and second, before the monitor said anything
	AttemptsLimit int           // transfers that may fail in a row before the cluster is held
	HoldTime      time.Duration // a cluster that is held is tried again so often
}

// Machine negotiates changes of one cluster.
type Machine struct {
	settings Settings
	speaker  events.Speaker
	state    state
	waits    waiting // not remembered: a restarted negotiator gives everybody the full time again
}

// New returns a machine that knows nothing yet.
func New(settings Settings) *Machine {
	return &Machine{
		settings: settings,
		speaker:  events.Speaker{Source: "/negotiator", Cluster: settings.Cluster},
		state:    newState(),
	}
}

// handlers says what the machine does about each kind of event.
var handlers = map[events.Kind]func(*Machine, events.Event) ([]events.Event, error){
	events.JoinRequested:       open((*Machine).join),
	events.LeaveRequested:      open((*Machine).leave),
	events.ConnectRequested:    open((*Machine).connect),
	events.DisconnectRequested: open((*Machine).disconnect),
	events.NodeLost:            open((*Machine).nodeLost),
	events.NodeProfiled:        open((*Machine).profiled),
	events.LinkMeasured:        open((*Machine).linkMeasured),
	events.LinkLost:            open((*Machine).linkLost),
	events.LinkRestored:        open((*Machine).linkRestored),
	events.Consented:           open((*Machine).consented),
	events.PlanProposed:        open((*Machine).proposed),
	events.PlanRefused:         open((*Machine).impossible),
	events.RestorationPlanned:  open((*Machine).restorationPlanned),
	events.RestorationRefused:  open((*Machine).impossible),
	events.Promised:            open((*Machine).promised),
	events.RestorationDone:     open((*Machine).restored),
	events.RestorationFailed:   open((*Machine).transferFailed),
	events.NegotiationOverdue:  open((*Machine).overdue),
}

// open turns a handler of a payload into a handler of an event.
func open[T any, P interface {
	*T
	events.Payload
}](handle func(*Machine, events.Event, T) []events.Event) func(*Machine, events.Event) ([]events.Event, error) {
	return func(m *Machine, event events.Event) ([]events.Event, error) {
		payload, err := events.Open[T, P](event)
		if err != nil {
			return nil, err
		}
		return handle(m, event, payload), nil
	}
}

// Hears returns the kinds of event the machine handles.
func (m *Machine) Hears() []events.Kind { return slices.Sorted(maps.Keys(handlers)) }

// Handle takes one event and returns what is to be said because of it.
func (m *Machine) Handle(event events.Event) ([]events.Event, error) {
	handle, ok := handlers[event.Kind]
	if !ok {
		return nil, nil
	}
	return handle(m, event)
}
