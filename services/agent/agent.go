// Package agent stands beside a trainer and speaks for it: it asks for a place, sends heartbeats, answers
// negotiations, moves the layers a plan moves, and hands the training loop each new plan at a step boundary.
//
// A training loop calls Boundary after each step and does as it says; everything that touches the trainer's state
// happens inside that call, on the loop's own goroutine.
package agent

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/shards"
	"github.com/reknit/reknit/shared/bus"
)

// ErrLeft ends a session whose node is out of the cluster for good, because it asked to leave.
var ErrLeft = errors.New("the node has left the cluster")

// Config is what an agent must know of its trainer.
type Config struct {
	NATSURL     string
	Cluster     string
	Node        string        // id of this node
	Address     string        // host:port where other trainers reach its data plane
	MemoryBytes int64         // what training may use
	Job         events.Job    // what is trained
	TotalSteps  uint64        // training ends there; zero is never
	PreCopies   bool          // the State given to Boundary is a Follower: layers may move while training goes on
	PulseEvery  time.Duration // between heartbeats; 500 ms by default, so that a silent node is missed within seconds
	// Store is what the node serves its shards from, for others to dial at the host of Address. Its Bucket is set by Join;
	// without a Dir the parts lie in memory while they are given.
	Store shards.StoreConfig

	// Measure measures the link to another trainer's data plane, sending so many bytes for the bandwidth.
	Measure func(ctx context.Context, address string, bytes int) (roundTripSeconds, bandwidthBytesPerSecond float64, err error)
	// Relayed receives a data-plane frame that came through the hub.
	Relayed func(frame []byte)
}

// State is the trainer's state as the agent needs it. Versions are completed steps. Where the job's optimizer state is cut into
// partitions, a layer is a row of the state (see events.Job.RowBytes): its parameters, or one partition.
type State interface {
	// Holdings returns the layers and versions that can be given, newest first. A trainer that has no plan yet can
	// make every layer at version 0.
	Holdings() []events.Holding
	// Export returns the canonical bytes of a layer's state at a version that Holdings names.
	Export(layer int, step uint64) ([]byte, error)
	// Import keeps a verified layer aside until Adopt. It does not keep data.
	Import(layer int, step uint64, data []byte) error
	// Adopt makes these layers at this version the state to train, by rolling back, taking what was imported or
	// making version 0. What the state was before, the version before and the layers no longer needed, may be
	// asked for until a step is completed under the new plan: a failure in that step goes back to it.
	Adopt(layers []events.Range, step uint64) error
}

// Follower is a State whose layers can be followed while they are trained: a receiver takes a layer as it was at some step, and
// then what each step changed in it. All stop for the changes of the last steps only, instead of for the layers.
type PreCopier interface {
	State
	// Change returns what the step that ended with this number of completed steps changed in a layer: Apply turns the layer at the
	// step before into the layer at this one. It is asked for inside Boundary, and of the last step only.
	Change(layer int, step uint64) ([]byte, error)
	// Apply returns the canonical bytes of a layer one step on. It is called from other goroutines while training goes on, and
	// touches nothing but its arguments.
	Apply(layer int, data, change []byte) ([]byte, error)
}

// Orders are what a training loop does next.
type Orders struct {
	Plan     *events.Plan    // in force
	Switched bool            // the plan is new: the state was adopted at Plan.ResumeStep
	Step     context.Context // of the coming step; cancelled when the step must be abandoned
}

// Session is a node's membership of a cluster. Its methods may be called from any goroutine, Boundary from one.
type Session struct {
	config  Config
	bus     *bus.Bus
	speaker events.Speaker
	store   *shards.Store
	stop    []func()
	cancel  context.CancelFunc
	context context.Context // of everything the session does in the background
	news    chan struct{}   // one token: something changed that Boundary may wait for

	mutex      sync.Mutex
	view       view
	moves      *moves         // the last
	follower   PreCopier      // nil before the first Boundary
	overtaking []events.Event // heard before the plan they build on
	clock      stepClock
	beat       events.Pulse
	pulsed     time.Time                   // the last heartbeat was sent
	suspicions map[string]events.Suspicion // not yet told
}

// Join connects, starts the heartbeat and asks for a place. Boundary waits for the plan that grants it.
func Join(ctx context.Context, config Config) (*Session, error) {
	if err := config.complete(); err != nil {
		return nil, err
	}
	connection, err := bus.Connect(ctx, bus.Config{URL: config.NATSURL, Name: config.Node, Cluster: config.Cluster})
	if err != nil {
		return nil, err
	}
	session := &Session{
		config: config, bus: connection, news: make(chan struct{}, 1), suspicions: map[string]events.Suspicion{},
		speaker: events.Speaker{Source: events.NodeSource(config.Node), Cluster: config.Cluster},
	}
	session.context, session.cancel = context.WithCancel(context.WithoutCancel(ctx))
	config.Store.Bucket, config.Store.Memory = events.ShardBucketOf(config.Node), config.Store.Dir == ""
	if session.store, err = shards.Serve(ctx, config.Store); err == nil {
		err = session.begin(ctx)
	}
	if err != nil {
		session.Close()
		return nil, err
	}
	return session, nil
}

func (c *Config) complete() error {
	if !events.Token(c.Node) {
		return fmt.Errorf("agent: node %q: expected 1 to 64 characters of A-Z a-z 0-9 - _", c.Node)
	}
	if !events.Token(c.Cluster) {
		return fmt.Errorf("agent: cluster %q: expected 1 to 64 characters of A-Z a-z 0-9 - _", c.Cluster)
	}
	if c.Store.Host == "" {
		c.Store.Host, _, _ = net.SplitHostPort(c.Address) // an address without a port is no host either; the store says so
	}
	if c.PulseEvery == 0 {
		c.PulseEvery = 500 * time.Millisecond
	}
	return nil
}

// begin subscribes before it asks, so that no answer is missed.
func (s *Session) begin(ctx context.Context) error {
	if err := s.bus.Provision(ctx); err != nil {
		return err
	}
	if err := s.listen(); err != nil {
		return err
	}
	if err := s.ask(ctx); err != nil {
		return err
	}
	go s.pulse()
	return nil
}

// ask requests membership under a new incarnation, which holds nothing.
func (s *Session) ask(ctx context.Context) error {
	s.mutex.Lock()
	s.view.endNegotiation() // what the incarnation before was moving stops
	s.view, s.overtaking = view{incarnation: newIncarnation()}, nil
	incarnation := s.view.incarnation
	s.mutex.Unlock()
	_, err := s.bus.Publish(ctx, s.speaker.First(time.Now(), incarnation, events.JoinRequested, s.config.Node, &events.Join{
		Node: s.config.Node, Incarnation: incarnation, Address: s.config.Address, ShardAddress: s.shardAddress(),
		PreCopies: s.config.PreCopies, MemoryBytes: s.config.MemoryBytes, Job: s.config.Job,
	}))
	return err
}

// shardAddress is the store's port at the host where others reach this node.
func (s *Session) shardAddress() string {
	host, _, err := net.SplitHostPort(s.config.Address)
	if err != nil {
		host = s.config.Address
	}
	return net.JoinHostPort(host, strconv.Itoa(s.store.Port()))
}

func newIncarnation() string {
	var random [8]byte
	rand.Read(random[:])
	return hex.EncodeToString(random[:])
}

// listen follows the negotiations, the manifests and the plans of the cluster.
func (s *Session) listen() error {
	follow := func(stream events.Stream, subjects ...string) error {
		stop, err := s.bus.Follow(s.context, stream, subjects, bus.New, s.hear)
		if err == nil {
			s.stop = append(s.stop, stop)
		}
		return err
	}
	var heard []string
	for _, kind := range []events.Kind{
		events.NegotiationOpened, events.PreCopyStarted, events.Prepared, events.Scheduled, events.Aborted, events.ShardOffered,
	} {
		heard = append(heard, events.EventSubject(s.config.Cluster, kind, "*"))
	}
	heard = append(heard, events.EventSubject(s.config.Cluster, events.MembershipRefused, s.config.Node))
	if err := follow(events.EventStream, heard...); err != nil {
		return err
	}
	if err := follow(events.PlanStream, events.PlanSubject(s.config.Cluster, "*")); err != nil {
		return err
	}
	return s.answerProbes()
}

// Close ends the session without a word; a trainer that wants to go says Leave.
func (s *Session) Close() {
	s.cancel()
	for _, stop := range s.stop {
		stop()
	}
	s.bus.Close()
	if s.store != nil {
		s.store.Close()
	}
}

// Leave asks to go. Boundary returns ErrLeft once the cluster can do without the node.
func (s *Session) Leave(ctx context.Context, reason string, deadline time.Duration) error {
	s.mutex.Lock()
	s.view.leaving = true
	incarnation := s.view.incarnation
	s.mutex.Unlock()
	_, err := s.bus.Publish(ctx, s.speaker.First(time.Now(), incarnation, events.LeaveRequested, s.config.Node,
		&events.Leave{Node: s.config.Node, Reason: reason, DeadlineSeconds: deadline.Seconds()}))
	s.wake()
	return err
}

// Ready reports why the node cannot take part now: nil when it is connected and not refused.
func (s *Session) Ready() error {
	if !s.bus.Conn().IsConnected() {
		return errors.New("not connected to NATS")
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.view.refused != "" {
		return errors.New("membership refused: " + s.view.refused)
	}
	return nil
}

// Digested tells the digests of the layers held at a step, so that replicas are compared. Final ones are told before it
// returns; others in the background.
func (s *Session) Digested(ctx context.Context, step uint64, final bool, layers []events.UnitDigest) error {
	s.mutex.Lock()
	generation, incarnation := s.view.generation(), s.view.incarnation
	s.mutex.Unlock()
	reason := fmt.Sprintf("%s-%d-%d-%t", incarnation, generation, step, final)
	digests := s.speaker.First(time.Now(), reason, events.TrainingDigested, s.config.Node,
		&events.Digests{Node: s.config.Node, Generation: generation, Step: step, Final: final, Units: layers})
	if !final {
		s.say(digests)
		return nil
	}
	_, err := s.bus.Publish(ctx, digests)
	return err
}

func (s *Session) wake() {
	select {
	case s.news <- struct{}{}:
	default:
	}
}
