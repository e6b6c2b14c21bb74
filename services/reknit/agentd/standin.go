package agentd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent"
	"github.com/reknit/reknit/services/agent/fence"
	"github.com/reknit/reknit/services/agent/links"
	"github.com/reknit/reknit/services/agent/mtls"
	"github.com/reknit/reknit/services/agent/shards"
)

// standIn is a trainer for the cluster in the place of a script that knows nothing of it. Its state is a byte that never
// changes, so that nothing has to move. Its steps need nobody and have no end of their own: it completes one where a plan
// is to take over after it.
type standIn struct {
	config Config
	script string        // its name; empty: it is not known
	places chan place    // the newest, unless it was taken
	broken chan failure  // the last, unless it was told
	cut    chan struct{} // a token: the hub has not heard the node for too long
	ended  chan error    // one: why no more places come
	closed chan struct{} // when nothing is left of it
	cancel context.CancelFunc
	exit   end // of the script, once it is cancelled

	session *agent.Session
	watch   *links.Watch
	done    uint64        // completed steps
	place   place         // in the last plan that started scripts
	offered bool          // the place was: a script runs in it, or ran
	scripts fence.Scripts // that may run
	began   time.Time     // the plan in force
	started time.Time     // the agent
	due     time.Time     // of the next step, if no plan asks for it before
	made    atomic.Uint64 // generation of the place whose script has ended well; zero: none has
	told    uint64        // generation of the plan under which the cluster was told of that
	current uint64        // generation of the plan in force
	failed  string        // why the script of the place has ended, and the cluster was told; empty: nothing is known of that
}

// place is a script's part in a plan. Without a crew the script is to end, and the next place to be waited for.
type place struct {
	generation uint64
	rank       int
	crew       []events.Member // by rank
	host, port string          // where rank 0 listens
}

// failure is that of a script in its place in a plan.
type failure struct {
	generation uint64
	reason     string
}

const (
	lookEvery = 100 * time.Millisecond // at whether a plan is to take over
	// firstStep is how long the first step of a plan takes where no plan ends it. The next takes as long as all before it:
	// few enough that clocks do not drive nodes apart, and the negotiator sees that training gets on.
	firstStep   = 10 * time.Second
	tellExit    = 2 * time.Second // while the hub is away, the node's silence tells the same later
	meetPause   = time.Second     // after what the hub did not do
	tellAgain   = 5 * time.Second // a value: the hub, started again, has forgotten it
	portKey     = "port"
	memoryBytes = 1 << 20 // what the stand-in says that it may use
	// farAhead is more steps than nodes complete under one plan. A node that claims that the state at such a step is the same as ever tells
	// the truth. Nobody is waited for who might know of a newer step.
	farAhead = 1 << 32
)

// beginStandIn asks for a place in the background.
func beginStandIn(ctx context.Context, config Config, script string) *standIn {
	s := &standIn{
		config: config, script: script, started: time.Now(), places: make(chan place, 1), broken: make(chan failure, 1),
		cut:   make(chan struct{}, 1),
		ended: make(chan error, 1), closed: make(chan struct{}),
	}
	ctx, s.cancel = context.WithCancel(ctx)
	go s.run(ctx)
	return s
}

// close tells the cluster how the script ended, and ends the membership.
func (s *standIn) close(exit end) {
	s.exit = exit
	s.cancel()
	<-s.closed
}

func (s *standIn) run(ctx context.Context) {
	defer close(s.closed)
	err := s.join(ctx)
	if err == nil {
		go s.listen(ctx)
	}
	for err == nil {
		err = s.step(ctx)
	}
	if errors.Is(err, agent.ErrOtherJob) {
		err = s.otherScript(err)
	}
	s.ended <- err
	<-ctx.Done()
	if s.session != nil {
		s.tellExit(context.WithoutCancel(ctx))
		s.session.Close()
	}
	if s.watch != nil {
		s.watch.Close()
	}
}

func (s *standIn) tellExit(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, tellExit)
	defer cancel()
	how, code := "its agent ends", -1
	if s.exit.state != nil {
		how, code = s.exit.state.String(), s.exit.state.ExitCode()
	}
	if err := s.session.Exited(ctx, how, code); err != nil {
		slog.Warn("the script's end is not told", "error", err)
	}
}

func (s *standIn) join(ctx context.Context) (err error) {
	kept, err := s.keptFrom(ctx)
	if err != nil {
		return err
	}
	identity, err := mtls.Open(s.config.Kit)
	if err != nil {
		return err
	}
	s.watch, err = links.Listen(ctx, links.Config{
		Cluster: s.config.Cluster, Node: s.config.Node, Listen: s.config.Listen, Identity: identity,
		Suspect: func(node string, refused bool, reason string) { s.session.Suspect(node, refused, reason) },
	})
	if err != nil {
		return fmt.Errorf("REKNIT_AGENT_LISTEN: %w", err)
	}
	address := s.config.Advertise
	if address == "" {
		address = s.watch.Address()
	}
	s.session, err = agent.Join(ctx, agent.Config{
		NATSURL: s.config.URL, NATSKit: s.config.Kit, Identity: identity, Cluster: s.config.Cluster, Node: s.config.Node, Address: address,
		Site: s.config.Site, Consent: s.config.Policy,
		MemoryBytes: memoryBytes, Job: standInJob(s.script), Measure: s.watch.Measure, Trained: kept, Started: s.started,
		Store: shards.StoreConfig{Host: hostOf(s.config.Listen), Port: s.config.ShardPort},
	})
	return err
}

// step waits for the next step, and then for its end.
func (s *standIn) step(ctx context.Context) error {
	orders, err := s.session.Boundary(ctx, s.done, s)
	if err != nil {
		return err
	}
	if orders.Switched {
		s.takeUp(orders)
	}
	if !s.offered { // nor under the plan before, or for a change that came to nothing
		s.offered = s.meet(orders.Step)
	}
	if s.untilItsEnd(orders.Step) {
		s.done++
		now := time.Now()
		s.due = now.Add(now.Sub(s.began))
	} else {
		s.offer(place{})
	}
	return ctx.Err()
}

// untilItsEnd reports whether the step was completed: it is given up where the cluster says so, or the script failed.
func (s *standIn) untilItsEnd(step context.Context) (completed bool) {
	look, again := time.NewTicker(lookEvery), time.NewTicker(tellAgain)
	defer look.Stop()
	defer again.Stop()
	for {
		if step.Err() != nil {
			return false
		}
		if s.failed != "" { // a plan that overtook the word of it left the others' scripts as they are
			s.session.Broken(s.failed)
			return false
		}
		if s.takenOver() || time.Now().After(s.due) {
			return true
		}
		select {
		case <-step.Done():
			return false
		case failed := <-s.broken:
			if failed.generation == s.place.generation { // else the script is started again already
				s.failed = failed.reason
			}
		case <-again.C:
			if s.offered && s.place.rank == 0 {
				s.report(step, s.tell(step, s.place, portKey, s.place.port))
			}
		case <-look.C:
			s.report(step, s.tellEnd(step))
		}
	}
}

// takeUp takes up a new plan. The script that runs is stopped at once if scripts start anew: those that start elsewhere do not wait
// for it.
func (s *standIn) takeUp(orders agent.Orders) {
	plan := orders.Plan
	self, _ := plan.Member(s.config.Node)
	s.watch.Switch(self.Incarnation, links.PeersOf(plan, s.config.Node))
	s.done, s.began, s.current = plan.ResumeStep, time.Now(), plan.Generation
	s.due = s.began.Add(firstStep)
	crew := plan.Crew()
	isNamed := func(node string) bool { _, named := plan.Member(node); return named }
	if !s.scripts.Adopt(scriptsOf(crew), isNamed, orders.Abandoned, s.began) {
		return
	}
	s.offer(place{})
	s.failed, s.offered = "", false
	s.place = place{
		generation: plan.Generation, rank: slices.Index(crew, self), crew: crew, host: hostOf(crew[0].Address),
	}
}

// meet offers the place once no script of an older plan may write any more and rank 0's port is known, and reports whether it did. It does
// not where the step is given up, or another plan is to take over.
func (s *standIn) meet(step context.Context) bool {
	if !s.awaitAbsent(step) {
		return false
	}
	for step.Err() == nil && !s.takenOver() {
		err := s.findPort(step)
		if err == nil {
			s.offer(s.place)
			return true
		}
		s.report(step, err)
	}
	return false
}

// takenOver reports whether a plan is to take over after a step that is not made yet.
func (s *standIn) takenOver() bool {
	stop, known := s.session.Stop()
	return known && stop > s.done
}

// report says what the hub did not do, and waits for a moment.
func (s *standIn) report(ctx context.Context, err error) {
	if err == nil || ctx.Err() != nil {
		return
	}
	slog.Warn("the scripts do not find together yet", "node", s.config.Node, "error", err)
	select {
	case <-ctx.Done():
	case <-time.After(meetPause):
	}
}

// findPort learns the port at which rank 0 listens, which its agent chooses once and tells.
func (s *standIn) findPort(ctx context.Context) (err error) {
	if s.place.rank > 0 {
		s.place.port, err = s.await(ctx, s.place, portKey)
		return err
	}
	if s.place.port == "" {
		if s.place.port, err = freePort(hostOf(s.config.Listen)); err != nil {
			return err
		}
	}
	return s.tell(ctx, s.place, portKey, s.place.port)
}

// tell tells the others of a place's plan a value.
func (s *standIn) tell(ctx context.Context, of place, key, value string) error {
	rendezvous, err := s.session.Rendezvous(ctx, of.generation)
	if err == nil {
		err = rendezvous.Set(ctx, key, []byte(value))
	}
	return err
}

// await returns what another of a place's plan tells, or an error where it is not told in the time in which it would have
// been told again: who waits must ask the hub anew, which may have been started again.
func (s *standIn) await(ctx context.Context, of place, key string) (value string, err error) {
	ctx, cancel := context.WithTimeout(ctx, tellAgain)
	defer cancel()
	rendezvous, err := s.session.Rendezvous(ctx, of.generation)
	if err != nil {
		return "", err
	}
	told, err := rendezvous.Await(ctx, key)
	return string(told), err
}

// offer replaces a place that was not taken yet.
func (s *standIn) offer(next place) {
	select {
	case <-s.places:
	default:
	}
	s.places <- next
}

// breaks has all scripts started again, because this one failed.
func (s *standIn) breaks(failed failure) {
	select {
	case <-s.broken:
	default:
	}
	s.broken <- failed
}

// tellEnd tells that training is complete here, because the script has ended well: once under each plan with which it need not
// be started again. When all have told so, the job is complete.
func (s *standIn) tellEnd(ctx context.Context) error {
	if s.made.Load() != s.place.generation || s.place.generation == 0 || s.told == s.current {
		return nil
	}
	err := s.session.Digested(ctx, s.done, true, nil)
	if err == nil {
		s.told = s.current
	}
	return err
}

// The stand-in is an agent.State: a byte, at whatever step.

// Holdings returns the byte, at the step at which the stand-in is and at the first one, at which training may begin anew.
func (s *standIn) Holdings() []events.Holding {
	steps := []uint64{s.done}
	if s.done > 0 {
		steps = append(steps, 0)
	}
	return []events.Holding{{Units: events.Range{First: 0, End: 1}, Steps: steps}}
}

// Export returns the byte.
func (s *standIn) Export(int, uint64) ([]byte, error) { return []byte{1}, nil }

// Import does nothing: it is the byte that it has.
func (s *standIn) Import(int, uint64, []byte) error { return nil }

// Adopt has it at that step.
func (s *standIn) Adopt(_ []events.Range, step uint64) error {
	s.done = step
	return nil
}

// Forget does nothing: it never is another byte.
func (s *standIn) Forget() {}
