// Package machine is the agent's deterministic part. It hears the cluster's events, the trainer's step boundaries
// and how its tasks ended, and returns what is to be said, what the trainer does next and which tasks begin. It has
// no clock, no network and no log.
//
// The files stand in the protocol's order: membership.go (asking for a place, leaving, being given up), plans.go
// (the two streams put in order), negotiation.go (consenting, promising), precopy.go and transfer.go (moving
// units), capture.go (what goes into snapshots), boundary.go (what the trainer does next), step.go (steps that cannot
// end), ending.go (the end of the job).
package machine

import (
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/consent"
)

// Settings are what a machine must know of its trainer.
type Settings struct {
	Cluster      string
	Node         string
	Process      string   // with which its incarnations begin, and no other process's
	Address      string   // host:port of the trainer's data plane
	Name         string   // what people call the node; empty: as its id says
	Site         string   // where the node stands; empty: nobody said
	ShardAddress string   // host:port of the node's shard store; empty: its shards go through the hub
	MemoryBytes  int64    // what training may use
	StateCopies  int      // of the units that are trained, in memory beside them
	Samples      int64    // of the node's local data, where the job's is local
	Neighbours   []string // to which it wants direct links, out of those that there are; none: to each
	Processors   int      // of the host; zero: not known
	Job          events.Job
	Started      time.Time    // of the agent that starts the trainer, again where it fails; zero: somebody else does
	Trained      uint64       // generation of the plan that the trainer's state belongs to, from a session before; zero: none
	Past         *events.Plan // that plan; nil where it is not known
	Consent      consent.Policy
	Secured      bool   // who joins is of the institution that a signed policy says, and not of the site that it names itself
	PreCopies    bool   // units may move while training goes on
	Tiers        []Tier // that snapshots go to, the nearest first; none: no snapshots
	Folder       string // of those on the node's own disk; empty: it writes none there
}

// Machine speaks for one trainer. It serves one goroutine.
type Machine struct {
	settings Settings
	speaker  events.Speaker
	actions  []Action // of the input under way
	last     Task     // that was given out

	membership    membership
	incarnation   string
	claimable     uint64         // generation of the plan that the trainer's state belongs to; zero: nothing may be claimed
	counts        map[int]uint64 // by unit: the step at which that state counts, or eachStep; nil: all of it counts
	trained       *committed     // that plan; nil where it is not known
	reason        string         // why it was given up
	replaced      bool           // since it was given up a plan does without it
	jobComplete   bool           // nobody needs what this node holds
	tookBack      bool           // its name from another process, and has adopted no plan since
	outdone       uint64         // generation of the newest plan that has another process train by this node's name; zero: none has
	leave         *events.Leave  // asked for, and not refused
	leaveAsked    time.Time
	leavesRefused int // tells a leave from its repeat

	newest      newest         // plan heard of
	plan        *committed     // taken up; nil before the first of this incarnation
	pending     []committed    // heard of and not taken up, in order
	overtaking  []events.Event // heard before the plan that they build on, at most mostOvertaking
	reread      uint64         // generation of the plan that was asked for again
	negotiation *negotiation   // under way; nil for none
	waits       Waits          // why the cluster is held; zero: it is not
	ended       []string       // negotiations that are over, at most mostEnded
	promise     *uint64        // completed steps not to be passed before the negotiation ends
	awaited     uint64         // nothing is trained before the plan of this generation; zero: none is awaited

	trainer   trainer
	stuck     bool             // its step broke, and the others have yet to give up theirs
	slow      bool             // it has been giving up its step for long
	hung      bool             // it has not given it up in time
	away      bool             // its script has made the step and does something else, which nobody waits for
	frozen    []events.Holding // what it holds while it gives up its step; nil: not known
	done      uint64           // completed steps
	switched  bool             // a plan was adopted since the trainer was last told to train
	abandoned bool             // steps were to be given up since then, its own or others'
	asked     *asked           // what the trainer's state is at; nil for nothing
	capturing bool             // the trainer's state gives units to those who pre-copy
	imported  map[int]imported // by unit: what the trainer's state keeps aside until it adopts
	pace      pace
	stood     float64 // seconds for which the trainer's process has done nothing; zero: it was not said to
	computed  float64 // seconds of passes in the step under way
	diverged  uint64  // the first step of those in a row whose loss is not finite, in completed ones; zero: it is, or is not known here
	steps     steps   // of the plan in force
	ending    *ending // told last; nil: training was never complete here
	snapshots snapshots
}

// New returns a machine whose node has not asked for a place.
func New(settings Settings) *Machine {
	return &Machine{
		settings:  settings,
		speaker:   events.Speaker{Source: events.NodeSource(settings.Node), Cluster: settings.Cluster},
		imported:  map[int]imported{},
		claimable: settings.Trained,
		trained:   before(settings),
	}
}

// handlers says what the machine does about each kind of event.
var handlers = events.Handlers[*Machine]{
	events.MembershipRefused: handling((*Machine).refused),
	events.JoinDelayed:       handling((*Machine).joinDelayed),
	events.LeaveDelayed:      handling((*Machine).leaveDelayed),
	events.StepDelayed:       handling((*Machine).stepDelayed),
	events.NegotiationOpened: handling((*Machine).opened),
	events.PreCopyStarted:    handling((*Machine).preCopyStarted),
	events.Prepared:          handling((*Machine).prepared),
	events.Scheduled:         handling((*Machine).scheduled),
	events.ShardOffered:      handling((*Machine).offered),
	events.Aborted:           handling((*Machine).aborted),
	events.TrainingCompleted: handling((*Machine).completed),
	events.ClusterHeld:       handling((*Machine).held),
	events.PlanCommitted:     handling((*Machine).committed),
	events.SnapshotRequested: handling((*Machine).snapshotRequested),
	events.TrainingStopped:   handling((*Machine).stopped),
	events.SnapshotCompleted: handling((*Machine).snapshotCompleted),
	events.SnapshotOverdue:   handling((*Machine).snapshotOverdue),
	events.SnapshotWithdrawn: handling((*Machine).snapshotWithdrawn),
}

func handling[T any, P interface {
	*T
	events.Payload
}](handle func(machine *Machine, event events.Event, payload T)) func(*Machine, events.Event) ([]events.Event, error) {
	return events.Handling[*Machine, T, P](func(machine *Machine, event events.Event, payload T) []events.Event {
		handle(machine, event, payload)
		return nil
	})
}

// Hears returns the kinds of event that the machine handles. Answers to other nodes have no effect.
func (m *Machine) Hears() []events.Kind { return handlers.Kinds() }

// Answers reports whether events of a kind are for one node, and have it as their subject: nobody else needs to hear them.
func Answers(kind events.Kind) bool {
	return kind == events.MembershipRefused || kind == events.JoinDelayed || kind == events.LeaveDelayed || kind == events.StepDelayed ||
		kind == events.SnapshotWithdrawn
}

// Handle takes one event. Each stream's events come in their order; the streams have none in common. An event whose
// payload is not what its kind demands is an error and has no effect.
func (m *Machine) Handle(event events.Event) ([]Action, error) {
	if m.membership == over {
		return nil, nil
	}
	err := m.inOrder(event)
	return m.act(), err
}

// Done takes the result of a task. The result of a task that nobody waits for any more has no effect.
func (m *Machine) Done(result Result) []Action {
	if m.membership == over {
		return nil
	}
	switch result := result.(type) {
	case Measured:
		m.measured(result)
	case Told:
		m.told(result)
	case Adopted:
		m.adopted(result)
	case CaughtUp:
		m.caughtUp(result)
	case Exported:
		m.exported(result)
	case Fetched:
		m.fetched(result)
	case Failed:
		m.failed(result)
	}
	return m.act()
}

// act has the trainer do what is due, and returns all that is to be done because of the input under way.
func (m *Machine) act() []Action {
	m.settle()
	actions := m.actions
	m.actions = nil
	return actions
}

func (m *Machine) do(action Action) { m.actions = append(m.actions, action) }

func (m *Machine) say(cause events.Event, kind events.Kind, subject string, payload events.Payload) {
	m.do(Say{m.speaker.Say(cause, kind, subject, payload)})
}

func (m *Machine) task() Task {
	m.last++
	return m.last
}
