// Package machine is the negotiator's deterministic part: it hears facts, requests, consents and proposals, decides
// whether and when a change happens, and commits plans. It has no clock, no network and no log.
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
	return &Machine{
		settings: settings,
		speaker:  events.Speaker{Source: "/negotiator", Cluster: settings.Cluster},
		state:    newState(),
	}
}

// handlers says what the machine does about each kind of event.
var handlers = events.Handlers[*Machine]{
	events.JoinRequested:       events.Handling((*Machine).join),
	events.LeaveRequested:      events.Handling((*Machine).leave),
	events.ConnectRequested:    events.Handling((*Machine).connect),
	events.DisconnectRequested: events.Handling((*Machine).disconnect),
	events.StepBroken:          events.Handling((*Machine).stepBroken),
	events.NodeExited:          events.Handling((*Machine).exited),
	events.NodeLost:            events.Handling((*Machine).nodeLost),
	events.NodeProfiled:        events.Handling((*Machine).profiled),
	events.LinkMeasured:        events.Handling((*Machine).linkMeasured),
	events.LinkLost:            events.Handling((*Machine).linkLost),
	events.LinkRestored:        events.Handling((*Machine).linkRestored),
	events.Consented:           events.Handling((*Machine).consented),
	events.PlanProposed:        events.Handling((*Machine).proposed),
	events.PlanDeferred:        events.Handling((*Machine).deferred),
	events.PlanRefused:         events.Handling((*Machine).impossible),
	events.RestorationPlanned:  events.Handling((*Machine).restorationPlanned),
	events.RestorationRefused:  events.Handling((*Machine).impossible),
	events.PreCopyCaughtUp:     events.Handling((*Machine).caughtUp),
	events.PlanActivated:       events.Handling((*Machine).activated),
	events.PlanMeasured:        events.Handling((*Machine).paced),
	events.ConsentDelayed:      events.Handling((*Machine).delayed),
	events.Promised:            events.Handling((*Machine).promised),
	events.RestorationDone:     events.Handling((*Machine).restored),
	events.RestorationFailed:   events.Handling((*Machine).transferFailed),
	events.ReplicaDiverged:     events.Handling((*Machine).diverged),
	events.TrainingDigested:    events.Handling((*Machine).digested),
	events.TrainingCompleted:   events.Handling((*Machine).completed),
	events.StopRequested:       (*Machine).asked,
	events.ResetRequested:      (*Machine).asked,
	events.SnapshotWritten:     events.Handling((*Machine).snapshotWritten),
	events.SnapshotFailed:      events.Handling((*Machine).snapshotFailed),
	events.SnapshotCompleted:   events.Handling((*Machine).snapshotCompleted),
	events.TrainingStopped:     events.Handling((*Machine).stopped),
	events.NegotiationOverdue:  events.Handling((*Machine).overdue),
	events.LogAccepted:         events.Handling((*Machine).accepted),
	events.ReleaseRequested:    (*Machine).asked,
	events.TrainingReset:       events.Handling((*Machine).begunAnew),
}

// Hears returns the kinds of event the machine handles.
func (m *Machine) Hears() []events.Kind { return handlers.Kinds() }

// Handle takes one event and returns what is to be said because of it.
func (m *Machine) Handle(event events.Event) ([]events.Event, error) {
	m.state.Heard, m.since = event.Logged, 0
	if !slices.Contains(measurements, event.Kind) {
		m.looked = false
		defer func() { m.looked = false }()
	}
	if m.state.Complete != nil {
		return afterwards.Handle(m, event)
	}
	return handlers.Handle(m, event)
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

// say tells a fact of the negotiation under way.
func (m *Machine) say(cause events.Event, kind events.Kind, payload events.Payload) events.Event {
	return m.speaker.Say(cause, kind, m.state.Negotiation.ID, payload)
}

// farAway is in seconds: what lies beyond it, as a deadline that a user calls never, a time could not tell.
const farAway = 1e9

func seconds(s float64) time.Duration { return time.Duration(min(s, farAway) * float64(time.Second)) }
