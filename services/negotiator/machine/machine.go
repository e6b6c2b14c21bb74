// Package machine is the negotiator's deterministic part: it hears facts, requests, consents and proposals, and then decides
// whether and when a change happens, and commits plans. It has no clock, no network and no log.
//
// Handlers hear: they note facts in the state and in the agenda. The rules of advance.go decide.
package machine

import (
	"slices"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

// Settings are the negotiator's knobs.
type Settings struct {
	Cluster       string
	StartNodes    int           // generation 1 waits for that many nodes, or for as many as the job needs
	AnswerTimeout time.Duration // a member that does not consent or promise for so long, or for three steps, is given up
	TransferTime  time.Duration // a transfer that takes longer, and three times as long as predicted, is planned anew
	FailuresPrior float64       // failures per node and second, before the monitor said anything
	PreCopySteps  float64       // a move expected to take longer than so many steps is made while training goes on
	AttemptsLimit int           // transfers that may fail in a row before the cluster is held
	Admission     protocol.Admission
	HoldTime      time.Duration // a cluster that is held is tried again after so long, then after twice as long, and so on
}

// Machine negotiates changes of one cluster.
type Machine struct {
	settings Settings
	speaker  events.Speaker
	state    state

	cause  events.Event   // that is handled: what is said is said because of it
	said   []events.Event // because of it, in order
	agenda agenda         // what it calls for and is not decided yet

	// The fields below are not remembered: a restarted negotiator gives everybody the full time again.
	waits  waiting
	ticked time.Time       // the last Tick
	since  time.Duration   // the last event, by ticks
	rung   map[string]bool // alarms told
	retold time.Time       // that the job is complete, after it was logged at this time

	began      time.Time       // the log; zero: long ago
	looked     bool            // at the links of all who wait, and nothing but measurements was heard since
	maySuffice map[string]bool // who waited and whose links sufficed then, and the ends of those measured since
}

// New returns a machine that knows nothing yet.
func New(settings Settings) *Machine {
	m := &Machine{
		settings: settings,
		speaker:  events.Speaker{Source: "/negotiator", Cluster: settings.Cluster},
		state:    newState(),
	}
	m.state.Admission = settings.Admission.Version
	return m
}

// handlers says who hears each kind of event.
var handlers = events.Handlers[*Machine]{
	events.JoinRequested:       handling((*Machine).join),
	events.LeaveRequested:      handling((*Machine).leave),
	events.ConnectRequested:    handling((*Machine).connect),
	events.DisconnectRequested: handling((*Machine).disconnect),
	events.StepBroken:          handling((*Machine).stepBroken),
	events.NodeExited:          handling((*Machine).exited),
	events.NodeLost:            handling((*Machine).nodeLost),
	events.NodeProfiled:        handling((*Machine).profiled),
	events.LinkMeasured:        handling((*Machine).linkMeasured),
	events.LinkLost:            handling((*Machine).linkLost),
	events.LinkRestored:        handling((*Machine).linkRestored),
	events.Consented:           handling((*Machine).consented),
	events.PlanProposed:        handling((*Machine).proposed),
	events.PlanDeferred:        handling((*Machine).deferred),
	events.PlanRefused:         handling((*Machine).impossible),
	events.RestorationPlanned:  handling((*Machine).restorationPlanned),
	events.RestorationRefused:  handling((*Machine).impossible),
	events.PreCopyCaughtUp:     handling((*Machine).caughtUp),
	events.PlanActivated:       handling((*Machine).activated),
	events.PlanMeasured:        handling((*Machine).paced),
	events.ConsentDelayed:      handling((*Machine).delayed),
	events.Promised:            handling((*Machine).promised),
	events.RestorationDone:     handling((*Machine).restored),
	events.RestorationFailed:   handling((*Machine).transferFailed),
	events.ReplicaDiverged:     handling((*Machine).diverged),
	events.TrainingDigested:    handling((*Machine).digested),
	events.TrainingCompleted:   handling((*Machine).completed),
	events.StopRequested:       (*Machine).asked,
	events.ResetRequested:      (*Machine).asked,
	events.SnapshotWritten:     handling((*Machine).snapshotWritten),
	events.SnapshotFailed:      handling((*Machine).snapshotFailed),
	events.SnapshotCompleted:   handling((*Machine).snapshotCompleted),
	events.TrainingStopped:     handling((*Machine).stopped),
	events.NegotiationOverdue:  handling((*Machine).overdue),
	events.LogAccepted:         handling((*Machine).accepted),
	events.ReleaseRequested:    (*Machine).asked,
	events.TrainingReset:       handling((*Machine).begunAnew),
}

// handling has a machine hear a payload. It decides nothing: see advance.
func handling[T any, P interface {
	*T
	events.Payload
}](hear func(machine *Machine, payload T)) func(*Machine, events.Event) ([]events.Event, error) {
	return events.Handling[*Machine, T, P](func(machine *Machine, _ events.Event, payload T) []events.Event {
		hear(machine, payload)
		return nil
	})
}

// Hears returns the kinds of event the machine handles.
func (m *Machine) Hears() []events.Kind { return handlers.Kinds() }

// Handle takes one event and returns what is to be said because of it.
func (m *Machine) Handle(event events.Event) ([]events.Event, error) {
	m.state.Heard, m.since = event.Logged, 0
	m.cause, m.said, m.agenda = event, nil, agenda{}
	if !slices.Contains(measurements, event.Kind) {
		m.looked = false
		defer func() { m.looked = false }()
	}
	hears := handlers
	if m.state.Complete != nil {
		hears = afterwards
	}
	if _, err := hears.Handle(m, event); err != nil {
		return nil, err
	}
	m.advance()
	return m.said, nil
}

// under returns the negotiation under way if it is the one named and in the phase expected. Anything else is a late or
// repeated answer and has no effect.
func (m *Machine) under(id string, phases ...protocol.Phase) *negotiation {
	under := m.state.Negotiation
	if under == nil || under.ID != id || !slices.Contains(phases, under.Phase) {
		return nil
	}
	return under
}

func (n *negotiation) takesPart(node, incarnation string) bool {
	member, there := events.MemberOf(n.Opening.Members, node)
	return there && (incarnation == "" || member.Incarnation == incarnation)
}

// enter begins a phase, in which the wait for answers begins anew.
func (n *negotiation) enter(phase protocol.Phase) { n.Phase, n.Round, n.missing = phase, 0, nil }

// say tells a fact because of the event that is handled.
func (m *Machine) say(kind events.Kind, subject string, payload events.Payload) {
	m.said = append(m.said, m.speaker.Say(m.cause, kind, subject, payload))
}

// farAway is in seconds: what lies beyond it, as a deadline that a user calls never, a time could not tell.
const farAway = 1e9

func seconds(s float64) time.Duration { return time.Duration(min(s, farAway) * float64(time.Second)) }
