// Package agent stands beside a trainer and speaks for it: it asks for a place, sends heartbeats, answers
// negotiations, moves the units that a plan moves, and hands the training loop each new plan at a step boundary.
//
// A training loop calls Boundary after each step and does as it says. Everything that touches the trainer's state
// happens inside that call, on the loop's own goroutine, and may take minutes: heartbeats and answers go on meanwhile.
// Package machine decides what is to be done; the session around it does what the machine asks for.
package agent

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/channel"
	"github.com/reknit/reknit/services/agent/consent"
	"github.com/reknit/reknit/services/agent/internal/host"
	"github.com/reknit/reknit/services/agent/machine"
	"github.com/reknit/reknit/services/agent/mtls"
	"github.com/reknit/reknit/services/agent/shards"
	"github.com/reknit/reknit/services/agent/snapshots"
	"github.com/reknit/reknit/shared/bus"
)

// ErrLeft ends a session whose node is out of the cluster for good, because it asked to leave.
var ErrLeft = errors.New("the node has left the cluster")

// ErrComplete ends a session whose cluster's job is done: by this node and the others, or before it came to train the same. A node that
// came to train another job is told ErrOtherJob.
var ErrComplete = errors.New("nothing is left to train")

// ErrOtherJob ends a session whose node trains another job than the cluster, which never takes it. A node that is refused
// for another reason, because another does not consent, say, asks again.
var ErrOtherJob = errors.New("the cluster does not take this node, which trains another job")

// ErrRevoked ends a session whose node's kit is worth nothing any more. Its script would be refused again.
var ErrRevoked = errors.New("the cluster goes on without this node")

// Config is what an agent must know of its trainer.
type Config struct {
	NATSURL     string
	NATSKit     string         // folder of keys and certificates; empty where NATS asks for none
	Identity    *mtls.Identity // of that kit, by which the data plane lets nodes in that this one works with; nil: the session opens it
	Cluster     string
	Node        string        // id of this node
	Address     string        // host:port where other trainers reach its data plane
	Site        string        // where the node stands; empty: nobody says
	Neighbours  []string      // ids of the nodes to which it wants direct links, out of those that there are when it asks; none: to each
	MemoryBytes int64         // what training may use
	Versions    int           // that the State keeps in memory to roll back to, beside the one it trains
	Samples     int64         // of the node's local data, where the job's is local
	Job         events.Job    // what is trained
	Trained     uint64        // generation of the plan under which the first Boundary's state was trained, which is claimed; zero: none
	Past        *events.Plan  // that plan, which is told to a log that has lost it; nil where it is not known
	Started     time.Time     // of the process that starts the trainer, again where it fails; zero: somebody else does
	PreCopies   bool          // the State given to Boundary is a PreCopier: units may move while training goes on
	PulseEvery  time.Duration // between heartbeats; 500 ms by default, so that a silent node is missed within seconds
	// Store is what the node gives its shards from, for others to dial at the host of Address. Its Bucket is set by Join.
	Store shards.StoreConfig

	// Consent says which changes that others ask for the node takes part in.
	Consent consent.Policy

	// Snapshots says where what is trained is kept for the case that all holders of a unit die at once.
	Snapshots snapshots.Settings
	// Memory keeps snapshots in memory for the node's next session in this process; nil: they end with this one.
	Memory *snapshots.Memory

	// Stuck hears that the trainer has not given up a step, and that a plan does without what it holds or the job is
	// complete; nil for nobody.
	Stuck func()

	// Stays hears that the cluster does not let the node go: it trains on, and may ask again. It must not block. nil: nobody
	// wants to know.
	Stays func()

	// Waits hears why training waits, for which nodes and since when, or with no reason that it goes on. It must not
	// block. nil: nobody wants to know.
	Waits func(reason string, awaits []string, since time.Time)

	// Late hears that the others need longer to do without the node than its leave gave them, and which units it alone
	// holds: they are lost if it ends before Boundary returns ErrLeft. It must not block. nil: nobody wants to know.
	Late func(reason string, seconds float64, alone []events.Range)

	// Leaving hears that the node is to go, as a user asked the cluster, and why. A caller of Leave does not hear of its own call. It
	// must not block. nil: nobody wants to know.
	Leaving func(reason string)

	// Measure measures the link to a node's data plane, sending so many bytes for the bandwidth.
	Measure func(ctx context.Context, node, address string, bytes int) (
		roundTripSeconds, bandwidthBytesPerSecond float64, err error)
	// Relayed receives a data-plane frame that came through the hub, and who sent it: empty where nobody proves that.
	Relayed func(from string, frame []byte)
}

// State is the trainer's state as the agent needs it. Versions are completed steps. A unit of the state is a layer
// or, where the job's optimizer state is cut into partitions, a layer's parameters or one partition (see
// events.Job.UnitBytes).
type State interface {
	// Holdings returns the units and versions that can be given, newest first, imports kept aside among them. A trainer
	// that has no plan yet can make every unit at version 0.
	Holdings() []events.Holding
	// Export returns the canonical bytes of a unit at a version that Holdings names.
	Export(unit int, step uint64) ([]byte, error)
	// Import keeps a verified unit aside until Adopt, or until training is two steps past it, in place of an older import
	// of it. It does not keep data.
	Import(unit int, step uint64, data []byte) error
	// Adopt makes these units at this version the state to train: by taking what was imported, whatever else is held at that version, by
	// rolling back or by making version 0. The previous state, which is the version before and the units no longer needed, may be asked for
	// until a step is completed under the new plan: a failure in that step goes back to it.
	Adopt(units []events.Range, step uint64) error
	// Forget drops all that is held: it is not what the other holders have.
	Forget()
}

// PreCopier is a State whose units can be copied while they are trained: a receiver takes a unit as it was at some
// step, and then what each step changed in it. All are paused for the changes of the last steps only, instead of
// for the units.
type PreCopier interface {
	State
	// Change returns what the step that ended with this number of completed steps changed in a unit: Apply turns the
	// unit at the step before into the unit at this one. It is asked for inside Boundary, and of the last step only.
	Change(unit int, step uint64) ([]byte, error)
	// Apply returns the canonical bytes of a unit one step on. It is called from other goroutines while training goes on,
	// and touches nothing but its arguments.
	Apply(unit int, data, change []byte) ([]byte, error)
}

// Lender is a State that lends the memory into which a unit is fetched. A unit on its way then takes no memory but its
// own.
type Lender interface {
	State
	// Lend returns so many bytes, none of which Holdings counts on: the unit is imported from there once it is verified,
	// or not at all. It is called while the loop is inside Boundary, from another goroutine, for one fetch of a unit at a
	// time.
	Lend(unit int, bytes int64) ([]byte, error)
}

// Stiller is a State whose exports stand still while training goes on, so that a snapshot is copied meanwhile.
type Stiller interface {
	State
	// Still is called inside Boundary. The bytes that Export returned there stay as they are until release is called,
	// from another goroutine, or release tells why they did not.
	Still() (release func() error)
}

// Orders are what a training loop does next.
type Orders struct {
	Plan      *events.Plan    // in force
	Switched  bool            // the plan is new: the state was adopted at Plan.ResumeStep
	Abandoned bool            // before the plan all were to give up their steps, whether or not this node was in one
	Step      context.Context // of the coming step; cancelled when the step must be abandoned
}

// Join connects, asks for a place and starts the heartbeat. Boundary waits for the plan that grants the place.
func Join(ctx context.Context, config Config) (*Session, error) {
	if err := config.complete(); err != nil {
		return nil, err
	}
	connection, err := bus.Connect(ctx, bus.Config{
		URL: config.NATSURL, Name: config.Node, Cluster: config.Cluster, Kit: config.NATSKit,
	})
	if err != nil {
		return nil, err
	}
	if key := connection.Identity().Key; key != "" && key != config.Node {
		connection.Close()
		return nil, fmt.Errorf("REKNIT_NATS_KIT: expected that of the node %s, got the one of %s", config.Node, key)
	}
	session := newSession(ctx, config, connection)
	if err := session.start(ctx); err != nil {
		session.Close()
		return nil, err
	}
	return session, nil
}

// start looks whether the name is free before it makes the shard store: its folder may be that of the process that has it.
func (s *Session) start(ctx context.Context) (err error) {
	if s.identity = s.config.Identity; s.identity == nil {
		if s.identity, err = mtls.Open(s.config.NATSKit); err != nil {
			return err
		}
	}
	s.channels = channel.New(s.context, s.identity, s.processOf, s.agree)
	if err := s.bus.Provision(ctx); err != nil {
		return err
	}
	if err := s.nameFree(); err != nil {
		return err
	}
	store := s.config.Store
	store.Identity, store.Bucket = s.identity, events.ShardBucketOf(s.config.Node)
	if s.store, err = shards.Serve(ctx, store); err != nil {
		return err
	}
	owner, err := s.proves(snapshots.Owner{Cluster: s.config.Cluster, Node: s.config.Node, Job: s.config.Job,
		MemoryBytes: s.config.MemoryBytes, Memory: s.config.Memory, Lend: s.lend,
		Written: s.written, Unwritten: s.unwritten, Withdraw: s.withdraw})
	if err != nil {
		return err
	}
	if s.snapshots, err = snapshots.Open(s.context, s.config.Snapshots, owner); err != nil {
		return err
	}
	return s.begin(ctx)
}

func (c *Config) complete() error {
	if !events.Token(c.Node) {
		return fmt.Errorf("agent: node %q: expected 1 to 64 characters of A-Z a-z 0-9 - _", c.Node)
	}
	if !events.Token(c.Cluster) {
		return fmt.Errorf("agent: cluster %q: expected 1 to 64 characters of A-Z a-z 0-9 - _", c.Cluster)
	}
	if err := c.Consent.Validate(); err != nil {
		return err
	}
	if c.Store.Host == "" {
		c.Store.Host, _, _ = net.SplitHostPort(c.Address) // an address without a port is no host either; the store says so
	}
	if c.PulseEvery == 0 {
		c.PulseEvery = 500 * time.Millisecond
	}
	return nil
}

// begin answers to its name at once, and listens before it asks for a place, so that no answer is missed.
func (s *Session) begin(ctx context.Context) error {
	s.machine = machine.New(machine.Settings{
		Cluster: s.config.Cluster, Node: s.config.Node, Process: s.process, Name: s.bus.Identity().Name,
		Address: s.config.Address, Site: s.config.Site,
		ShardAddress: s.shardAddress(), MemoryBytes: s.config.MemoryBytes, StateCopies: s.config.Versions + s.config.Snapshots.MemoryCopies(),
		Samples: s.config.Samples, Neighbours: s.config.Neighbours, Job: s.config.Job, Processors: host.Processors(),
		Started: s.config.Started, Trained: s.config.Trained, Past: s.config.Past, PreCopies: s.config.PreCopies,
		Tiers: s.snapshots.Tiers(), Folder: s.snapshots.Folder(), Consent: s.config.Consent, Secured: s.bus.Secured(),
	})
	s.identity.Admit(s.deals)
	if err := s.answerRequests(); err != nil {
		return err
	}
	if err := s.listen(); err != nil {
		return err
	}
	if err := s.recallComplete(ctx); err != nil {
		return err
	}
	if err := s.join(ctx); err != nil {
		return err
	}
	go s.pulse()
	go s.askAnew()
	return nil
}

// askAnew asks for a place again whenever the log turns out to be another one. A node whose kit is revoked ends: it trained on with
// neighbours that it reaches without the hub, who gave it up a minute later.
func (s *Session) askAnew() {
	for {
		select {
		case <-s.bus.Revoked():
			s.tell(s.machine.Revoked)
			return
		case replaced := <-s.bus.Replaced():
			s.tell(func() []machine.Action {
				s.asked = 0 // in the log before
				return s.machine.Forgotten(replaced.Error())
			})
		case <-s.context.Done():
			return
		}
	}
}

// shardAddress is the store's port at the host where others reach this node.
func (s *Session) shardAddress() string {
	host, _, err := net.SplitHostPort(s.config.Address)
	if err != nil {
		host = s.config.Address
	}
	return net.JoinHostPort(host, strconv.Itoa(s.store.Port()))
}

// newProcess draws what the incarnations of one session begin with.
func newProcess() string {
	var random [8]byte
	rand.Read(random[:])
	return hex.EncodeToString(random[:])
}

// listen follows the negotiations, the manifests and the plans of the cluster, from now on.
func (s *Session) listen() error {
	follow := func(stream events.Stream, subjects ...string) error {
		stop, err := s.bus.FollowBut(s.context, stream, subjects, bus.New, s.ignores, s.hear)
		if err == nil {
			s.stop = append(s.stop, stop)
		}
		return err
	}
	var heard []string
	for _, kind := range s.machine.Hears() {
		switch {
		case kind == events.PlanCommitted: // on a stream of its own
		case machine.Answers(kind):
			heard = append(heard, events.EventSubject(s.config.Cluster, kind, s.config.Node))
		default:
			heard = append(heard, events.AllOf(s.config.Cluster, kind, s.bus.Secured())...)
		}
	}
	if err := follow(events.EventStream, heard...); err != nil {
		return err
	}
	return follow(events.PlanStream, events.PlanSubject(s.config.Cluster, "*"))
}
