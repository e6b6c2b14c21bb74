package machine

import (
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/retention"
)

// Action is one thing that whoever runs the machine has to do. Actions are done in the order in which they were
// returned.
//
// Forget, Tell, Capture, Export, Adopt and the import at the end of Fetch touch the trainer's state: they are done at
// the boundary at which the trainer stands, one after the other, and Train comes after those returned before it. All
// other actions are done beside.
type Action interface{ action() }

// Task names work that ends in a Result. The result of a task that the machine no longer waits for has no effect.
type Task uint64

type (
	// Say publishes an event, and repeats it until the stream has it or the machine joins anew.
	Say struct{ Event events.Event }

	// Train has the trainer begin the step after the boundary at which it stands.
	Train struct {
		Plan      *events.Plan // in force
		Digest    string       // of that plan
		Switched  bool         // the plan is new: its units were adopted at Plan.ResumeStep
		Abandoned bool         // before the plan all were to give up their steps, whether or not this node was in one
	}

	// Abandon has the trainer give up the step under way and come back to the boundary. Hung is called if the trainer
	// has not come within so long. Frozen tells what the trainer holds until it comes, if that can be told without the
	// trainer.
	Abandon struct{ Within time.Duration }

	// Stuck tells that the trainer has not come back within the time of Abandon, and that a plan does without what it
	// holds, or the job is complete: who is its parent may end it.
	Stuck struct{}

	// Waits tells why training waits, for which nodes, and since when by the log's clock; without a reason, that it goes
	// on.
	Waits struct {
		Reason string
		Awaits []string
		Since  time.Time
	}

	// Late tells that the others cannot do without the node by the deadline of its leave: for how long they need it, and
	// which units nobody else holds.
	Late struct {
		Reason  string
		Seconds float64
		Alone   []events.Range
	}

	// Awaited tells that the others have waited for the trainer in their step for longer than usual: it may hang, or do something else.
	Awaited struct {
		Step   uint64 // completed steps of those who wait
		Reason string // who waits, for how long, and what the trainer does
	}

	// Leaving tells that the node is to go, as a user asked the cluster. A wish of the node's own is not told to it.
	Leaving struct{ Reason string }
	// Stays tells that the cluster does not let the node go, which trains on and may ask again.
	Stays struct{ Reason string }

	// Rejoin has the caller draw an incarnation and call Join: the cluster has gone on without this node.
	Rejoin struct{ Reason string }

	// Look has the caller look in the log who asked for a place by this node's name last, and call Replaced where that was
	// another process.
	Look struct{}

	// Reread has the caller read the plan of a generation from its stream until it is there, and hand it to Handle: events
	// were heard that build on it.
	Reread struct{ Generation uint64 }

	// End ends the session.
	End struct {
		Left     bool   // the node asked to go, and the cluster can do without it
		Refused  bool   // the cluster does not take the node as it is
		OtherJob bool   // that is because it trains another job
		Revoked  bool   // the node's kit is worth nothing any more
		Complete bool   // the job is done
		Stopped  bool   // training has stopped, with a snapshot, and may go on another time
		Reason   string // why the session cannot go on, where the node has not left
	}

	// Measure opens and measures the links to peers. It ends in Measured.
	Measure struct {
		Task  Task
		Peers []events.Member
	}

	// Forget drops all that the trainer's state holds: it went astray.
	Forget struct{}

	// Tell asks the trainer's state what it holds: holdings, or claims with the digest of each unit; and, if need be, the
	// tiers what can be read of snapshots. It ends in Told.
	Tell struct {
		Task      Task
		Claims    bool
		Snapshots bool
		Complete  map[string][]retention.ID // as of Capture
	}

	// Capture copies units at the step that the trainer has just completed, and begins to write them to tiers.
	Capture struct {
		Step   uint64       // completed steps
		Plan   *events.Plan // under which the step was trained
		Digest string       // of that plan
		Logged time.Time    // when the log took it
		Shares []Share
		Last   bool // training stops for good with it: what is being written is waited for, and what is written already stays
		// Complete are the snapshots that the cluster said are complete, by tier, the newest first.
		Complete map[string][]retention.ID
	}

	// Adopt makes units at a step the state to train. It ends in Adopted or Failed.
	Adopt struct {
		Task  Task
		Units []events.Range
		Step  uint64 // completed steps
	}

	// PreCopy begins to give and to take units while training goes on, until Close. For a node that takes some it ends in
	// CaughtUp.
	PreCopy struct {
		Task     Task
		Exchange Exchange
	}

	// Open begins to give and to take units where all are paused, until Close. Units that were pre-copied in the same negotiation are used.
	Open struct{ Exchange Exchange }

	// Close ends an exchange and all its tasks; what was stored for it is retired.
	Close struct{ Negotiation string }

	// Export gives a unit at a step to the exchange: its parts are stored for receivers until Close. It ends in Exported
	// or Failed.
	Export struct {
		Task     Task
		Unit     int
		Step     uint64 // completed steps
		Snapshot string // digest of the plan of the snapshot that the unit is read from; empty: the trainer's state has it
	}

	// Fetch takes a unit from those who offered it, verifies it and has the trainer's state import it. It ends in Fetched
	// or Failed.
	Fetch struct {
		Task     Task
		Transfer events.Transfer
		Offers   []events.Offer // alike, in the order of the transfer's sources
	}
)

// Exchange is what a negotiation moves between nodes.
type Exchange struct {
	Negotiation string
	Plan        events.Plan     // its migration says who gives what to whom
	Members     []events.Member // of the negotiation, leavers included
}

func (Say) action()     {}
func (Train) action()   {}
func (Abandon) action() {}
func (Stuck) action()   {}
func (Waits) action()   {}
func (Late) action()    {}
func (Awaited) action() {}
func (Leaving) action() {}
func (Stays) action()   {}
func (Rejoin) action()  {}
func (Look) action()    {}
func (Reread) action()  {}
func (End) action()     {}
func (Measure) action() {}
func (Forget) action()  {}
func (Tell) action()    {}
func (Capture) action() {}
func (Adopt) action()   {}
func (Open) action()    {}
func (Close) action()   {}
func (PreCopy) action() {}
func (Export) action()  {}
func (Fetch) action()   {}
