package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/channel"
	"github.com/reknit/reknit/services/agent/machine"
	"github.com/reknit/reknit/services/agent/mtls"
	"github.com/reknit/reknit/services/agent/shards"
	"github.com/reknit/reknit/services/agent/snapshots"
	"github.com/reknit/reknit/shared/bus"
)

const (
	insistPause = 2 * time.Second // before what found the log full is said again
	rereadPause = time.Second     // before a plan that was not heard is read, and read again
	measureTime = 2 * time.Second
	finishTime  = time.Minute // for a last snapshot, where another tier has it
)

// Bytes sent to measure a link's bandwidth while a negotiation waits: 5 ms at 1 Gbit/s.
const measureBytes = 512 << 10

// Session is a node's membership of a cluster. Its methods may be called from any goroutine, Boundary from one.
type Session struct {
	config    Config
	bus       *bus.Bus
	store     *shards.Store
	identity  *mtls.Identity    // to other nodes
	channels  *channel.Channels // to other nodes through the hub
	snapshots *snapshots.Snapshots
	stop      []func()
	cancel    context.CancelFunc
	context   context.Context // of everything the session does in the background
	process   string          // with which each of its incarnations begins
	news      chan struct{}   // one token: something changed that Boundary may wait for

	mutex    sync.Mutex // is never held while the trainer's state or the network is waited for
	machine  *machine.Machine
	answers  context.Context // of what is said in the incarnation's name
	silence  context.CancelFunc
	joins    int                     // incarnations so far
	asked    uint64                  // where the log has the request of this incarnation; zero: it is on its way
	looks    int                     // who has the node's name: under way, and one more
	exchange *exchange               // the last; nil before the first
	fetches  map[int]*sync.Mutex     // by unit: held while it is fetched
	reigns   map[string]reign        // by digest: plans of snapshots whose last step the log has
	facts    map[string]events.Event // to be said, by kind: digests, profiles, paces, and parts of snapshots by tier
	telling  bool                    // facts are being said
	oldKit   bool                    // it lets the node say nothing of what keeps snapshots from being written; whoever says facts knows
	heard    heard
	ended    error
	finishes bool // training has stopped, and a snapshot of that step may be under way to a second tier
	waiting  waiting
	refusal  refusal
	loop     loop
	pulses   pulses
}

// loop is the training loop, as of its last Boundary.
type loop struct {
	state     State           // nil before the first
	context   context.Context // of Boundary
	done      uint64          // completed steps
	turns     []turn          // what the trainer's state is to do, in order
	orders    *Orders         // what the loop does next; nil while it has to wait
	cancelled context.CancelFunc
	back      context.CancelFunc // ends the watch over a step that is given up
	copied    chan struct{}      // closed when a snapshot is copied, while which units stand still
}

// turn is something that the trainer's state is to do on the loop's goroutine.
type turn func(State)

func newSession(ctx context.Context, config Config, connection *bus.Bus) *Session {
	session := &Session{
		config: config, bus: connection, process: newProcess(),
		news: make(chan struct{}, 1), facts: map[string]events.Event{}, silence: func() {},
		fetches: map[int]*sync.Mutex{}, reigns: map[string]reign{},
		pulses: pulses{suspicions: map[string]*suspicion{}},
		loop:   loop{cancelled: func() {}, back: func() {}, copied: make(chan struct{})},
	}
	close(session.loop.copied)
	session.context, session.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return session
}

// Close ends the session without a word; a trainer that wants to go says Leave. No Boundary is under way, and when it
// returns, the memory that the trainer's state gave or lent is not touched any more.
func (s *Session) Close() {
	s.mutex.Lock()
	finishes := s.finishes
	s.mutex.Unlock()
	if finishes {
		s.snapshots.Finish(finishTime)
	}
	s.cancel()
	for _, stop := range s.stop {
		stop()
	}
	s.mutex.Lock()
	last, fetches := s.exchange, slices.Collect(maps.Values(s.fetches))
	s.mutex.Unlock()
	s.untilCopied()
	if last != nil {
		<-last.retired // those before it, too; all of it ends with the session's context
	}
	for _, fetch := range fetches {
		fetch.Lock()   // whoever held it has ended
		fetch.Unlock() //nolint:staticcheck // the lock is what is waited for
	}
	s.bus.Close()
	if s.snapshots != nil {
		s.snapshots.Close()
	}
	if s.store != nil {
		s.store.Close()
	}
}

// Leave asks to go. Boundary returns ErrLeft once the cluster can do without the node. Training must not need the
// node after the deadline; zero is none.
func (s *Session) Leave(reason string, deadline time.Duration) {
	s.tell(func() []machine.Action {
		if s.refusal.waits {
			s.refusal.waits = false
			s.end(machine.End{Left: true})
		}
		return s.machine.Leave(time.Now(), reason, deadline)
	})
}

// Heard returns nil once the hub has answered, and else why it did not before ctx ended.
func (s *Session) Heard(ctx context.Context) error { return s.bus.Conn().FlushWithContext(ctx) }

// Ready reports why the node cannot take part now: nil when it is connected and the session goes on.
func (s *Session) Ready() error {
	if !s.bus.Conn().IsConnected() {
		return errors.New("not connected to NATS")
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.ended
}

// Profiled tells what the node measured of its speed, its layers and its memory, as a speed.Profiler has it.
func (s *Session) Profiled(profile events.Profile) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.fact(string(events.NodeProfiled), s.machine.Profiled(time.Now(), profile))
}

// Digested tells the digests of the units held at a step, so that replicas are compared. Final ones are told before it
// returns; others in the background, and not at all where replicas are only alike.
func (s *Session) Digested(ctx context.Context, step uint64, final bool, units []events.UnitDigest) error {
	if !final && s.config.Job.Replicas == events.AlikeReplicas {
		return nil
	}
	s.mutex.Lock()
	digested := s.machine.Digested(time.Now(), step, final, units)
	if !final {
		s.fact(string(digested.Kind), digested)
	}
	s.mutex.Unlock()
	if !final {
		return nil
	}
	_, err := s.publish(ctx, digested)
	return err
}

// ignores reports whether an event is nothing to this node: its payload is not fetched.
func (s *Session) ignores(event events.Event) bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.machine.Ignores(event)
}

// hear takes an event of the log.
func (s *Session) hear(event events.Event) {
	slog.Debug("heard", "node", s.config.Node, "event", event.Kind, "subject", event.Subject, "sequence", event.Sequence)
	if s.isOver(event) {
		s.passOver(event)
		return
	}
	s.tell(func() []machine.Action {
		s.heard.note(event)
		actions, err := s.machine.Handle(event)
		if err != nil {
			slog.Error("event not understood", "kind", event.Kind, "id", event.ID, "error", err)
		}
		return actions
	})
	if event.Kind == events.MembershipRefused {
		s.sayRefused(event)
	}
}

// finish takes the result of a task.
func (s *Session) finish(result machine.Result) {
	s.tell(func() []machine.Action { return s.machine.Done(result) })
}

// tell tells the machine something, and does what it asks for.
func (s *Session) tell(what func() []machine.Action) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, action := range what() {
		s.do(action)
	}
	s.wake()
}

// do begins an action and waits for nothing. Called with the mutex held.
func (s *Session) do(action machine.Action) {
	switch action := action.(type) {
	case machine.Say:
		if action.Event.Kind == events.JoinRequested {
			go s.sayJoin(s.answers, action.Event)
			return
		}
		if kind := action.Event.Kind; kind == events.TrainingDigested || kind == events.PlanMeasured { // told again and again: the newest says all
			s.fact(string(kind), action.Event)
			return
		}
		go s.say(s.answers, action.Event)
	case machine.Train:
		s.train(action)
	case machine.Abandon:
		s.loop.cancelled()
		s.watch(action.Within)
	case machine.Stuck:
		slog.Error("the trainer hangs: it has not given up its step", "node", s.config.Node)
		if s.config.Stuck != nil {
			go s.config.Stuck()
		}
	case machine.Waits:
		s.waits(action)
	case machine.Late:
		s.late(action)
	case machine.Awaited:
		s.sayAwaited(action)
	case machine.Leaving:
		if s.config.Leaving != nil {
			s.config.Leaving(action.Reason)
		}
	case machine.Stays:
		s.stays(action.Reason)
	case machine.Rejoin:
		go s.rejoin(action.Reason)
	case machine.Look:
		if s.looks = min(s.looks+1, 2); s.looks == 1 {
			go s.look()
		}
	case machine.Reread:
		go s.reread(s.answers, action.Generation)
	case machine.End:
		s.end(action)
	case machine.Measure:
		go func() { s.finish(s.measureAll(action)) }()
	case machine.Forget:
		s.queue(func(state State) { state.Forget() })
	case machine.Tell:
		s.queue(func(state State) {
			late := time.AfterFunc(tellsSoon, func() { s.tell(s.machine.Late) })
			defer late.Stop()
			s.finish(s.told(state, action))
		})
	case machine.Capture:
		s.queue(func(state State) { s.capture(state, action) })
	case machine.Adopt:
		s.queue(func(state State) { s.adopt(state, action) })
	case machine.PreCopy:
		s.preCopy(action)
	case machine.Open:
		s.open(action.Exchange)
	case machine.Close:
		s.exchange.end()
	case machine.Export:
		s.export(action)
	case machine.Fetch:
		s.fetch(action)
	}
}

func (s *Session) end(end machine.End) {
	switch {
	case end.Left:
		s.ended, s.pulses.next.Left, s.finishes = ErrLeft, true, end.Stopped
		if end.Reason != "" {
			s.ended = fmt.Errorf("%w: %s", ErrLeft, end.Reason)
		}
		s.snapshots.Forget()
	case end.Complete:
		s.ended, s.pulses.next.Left = fmt.Errorf("%w: %s; %s", ErrComplete, end.Reason, s.trainLonger()), true
		s.snapshots.Forget()
	case end.OtherJob:
		s.ended = fmt.Errorf("%w: %s", ErrOtherJob, end.Reason)
	case end.Refused:
		s.askLater(end.Reason)
	case end.Revoked:
		s.ended = fmt.Errorf("%w: %s", ErrRevoked, end.Reason)
	default:
		s.ended = errors.New(end.Reason)
	}
	s.loop.cancelled()
}

// reread reads a plan that was not heard until it is there.
func (s *Session) reread(ctx context.Context, generation uint64) {
	subject := events.PlanSubject(s.config.Cluster, strconv.FormatUint(generation, 10))
	for pause(ctx, rereadPause) {
		plan, found, err := s.bus.LastEvent(ctx, events.PlanStream, subject)
		if err != nil {
			slog.Warn("plan not read", "node", s.config.Node, "generation", generation, "error", err)
		}
		if found {
			s.hear(plan)
			return
		}
	}
}

// measureAll opens and measures links, all at a time.
func (s *Session) measureAll(task machine.Measure) machine.Measured {
	result := machine.Measured{Task: task.Task, Unreached: map[string]string{}}
	var mutex sync.Mutex
	var probes sync.WaitGroup
	for _, peer := range task.Peers {
		probes.Go(func() {
			measured, err := s.measure(peer.Node, peer.Address, measureBytes)
			mutex.Lock()
			defer mutex.Unlock()
			if err != nil {
				result.Unreached[peer.Node] = err.Error()
			} else {
				result.Measurements = append(result.Measurements, measured)
			}
		})
	}
	probes.Wait()
	return result
}

func (s *Session) measure(peer, address string, bytes int) (events.Measurement, error) {
	measured := events.Measurement{From: s.config.Node, To: peer}
	if s.config.Measure == nil {
		return measured, errors.New("the trainer cannot measure links")
	}
	ctx, cancel := context.WithTimeout(s.context, measureTime)
	defer cancel()
	var err error
	measured.RoundTripSeconds, measured.BandwidthBytesPerSecond, err = s.config.Measure(ctx, peer, address, bytes)
	return measured, err
}

func (s *Session) wake() {
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// pause waits and reports whether ctx still lives.
func pause(ctx context.Context, duration time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(duration):
		return true
	}
}
