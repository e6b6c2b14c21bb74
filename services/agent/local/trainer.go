package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent"
	"github.com/reknit/reknit/services/agent/links"
	"github.com/reknit/reknit/services/agent/machine/speed"
	"github.com/reknit/reknit/services/agent/mtls"
	"github.com/reknit/reknit/services/agent/shards"
)

// trainer is a process that trains and the session in its name.
type trainer struct {
	node     string
	joining  Joining
	caller   int // id of the process that joined; zero where it is not known
	session  *agent.Session
	watch    *links.Watch
	dir      string  // of the files that it maps
	given    *folder // of what it gives
	bytes    int64   // of its state
	state    *state
	turns    *turns
	ended    context.Context
	end      context.CancelCauseFunc
	over     chan struct{} // closed when nothing is left of it, here and with its server
	heard    chan struct{} // closed when its session stream is open
	aborts   chan Abort    // the last that was not told yet
	waits    chan Waits    // likewise
	lates    chan Late     // likewise
	leavings chan Leaving  // likewise
	waiting  chan struct{} // a token for each call that waits for a value

	forgets *atomic.Bool // of Config

	made  bool  // the last step
	keeps bool  // the agent keeps what it leaves: its script has not ended well, or has not taken up what it was handed
	kept  *kept // what that left, once it is over; nil for nothing
	told  bool  // that it is finished
	speed speed.Profiler
	job   events.Job
	past  []*agent.Rendezvous // of plans before, the oldest first; the loop's own

	telling    sync.Mutex // an end: the session is open until the first is told
	mutex      sync.Mutex
	plan       *events.Plan // in force
	rendezvous *agent.Rendezvous
	stepping   context.Context // of the last step; done when that is over
	attended   bool            // somebody reads the session stream
}

// exit says how a trainer's process ended.
type exit struct {
	how    string
	code   int  // -1 where it is not known, or a signal of others ended it
	inStep bool // it told so of a step that it had not been told to give up

	stood time.Duration // for which it had done nothing; zero: it has ended by itself
}

func (e exit) Error() string { return "the trainer is gone: " + e.how }

var errClose = errors.New("the agent ends")

// start asks for a place in a trainer's name. Its files exist, and it does not call next yet.
func start(ctx context.Context, config Config, joining Joining, job events.Job, before *kept) (*trainer, error) {
	if joining.Dir == "" { // what the process had before is over
		sweep(stateParent(config.StateDir), folderPrefix, callerOf(ctx))
	}
	files, known, err := filesOf(config.StateDir, joining)
	var told failure
	var order errOrder
	if errors.As(err, &told) || errors.As(err, &order) {
		return nil, err
	}
	if errors.Is(err, syscall.ENOSPC) {
		return nil, failure{http.StatusServiceUnavailable, err.Error(),
			"give it more room (--shm-size of a container), or set REKNIT_AGENT_STATE_DIR to another place"}
	}
	if err != nil {
		return nil, fmt.Errorf("REKNIT_AGENT_STATE_DIR: %w", err)
	}
	t, err := newTrainer(ctx, config, joining.Node, job)
	if err != nil {
		files.close()
		return nil, err
	}
	t.joining, t.caller, t.forgets = joining, callerOf(ctx), config.forgets
	files.dir.own(t.caller)
	t.state = newState(files, joining.State == stateCopied, joining.Lazy, t.turns.do, known)
	t.turns.done = t.state.step()
	t.state.own = origin{joining, job}
	t.state.origin = t.state.own
	t.dir = files.dir.path
	for _, unit := range joining.Units {
		t.bytes += unit
	}
	trained, past := known.Generation, known.Plan
	if before != nil {
		trained, past = before.generation, before.plan
	}
	if err := t.join(ctx, config, joining, job, trained, past); err != nil {
		t.end(err)
		t.close()
		return nil, err
	}
	if before != nil {
		before.handOver(t.state)
	}
	return t, nil
}

// newTrainer returns one that has no session and no state. Its end is that of nothing else.
func newTrainer(ctx context.Context, config Config, node string, job events.Job) (t *trainer, err error) {
	t = &trainer{
		node: node, job: job, over: make(chan struct{}), heard: make(chan struct{}),
		aborts: make(chan Abort, 1), waits: make(chan Waits, 1), lates: make(chan Late, 1), leavings: make(chan Leaving, 1),
		waiting: make(chan struct{}, mostWaiting),
	}
	t.ended, t.end = context.WithCancelCause(context.WithoutCancel(ctx))
	t.stepping = t.ended // before the first step, too, a value may be waited for
	t.turns = newTurns(t.ended)
	if t.given, err = makeFolder(cmp.Or(config.ShardDir, os.TempDir()), folderPrefix); err != nil {
		return nil, fmt.Errorf("REKNIT_AGENT_SHARD_DIR: %w", err)
	}
	return t, nil
}

// filesOf makes the files of a trainer that joins, or takes over those of one whose agent has ended.
func filesOf(parent string, joining Joining) (*files, record, error) {
	if joining.Dir != "" {
		return takeFiles(parent, joining.Dir, joining.Units)
	}
	first := firstRecord(len(joining.Units))
	files, err := makeFiles(parent, joining.Units, !joining.Lazy)
	if err == nil {
		files.note(first)
	}
	return files, first, err
}

// join asks for a place. Kept is the generation of the plan under which the state that the trainer kept was trained; zero if it kept
// nothing. The plan itself is told to a log that has lost it; nil where it is not known.
func (t *trainer) join(
	ctx context.Context, config Config, joining Joining, job events.Job, kept uint64, past *events.Plan,
) (err error) {
	identity, err := mtls.Open(config.Kit)
	if err != nil {
		return err
	}
	session := make(chan *agent.Session, 1) // the watch suspects nobody before there is one
	t.watch, err = links.Listen(t.ended, links.Config{
		Cluster: config.Cluster, Node: t.node, Listen: config.Listen, Identity: identity,
		Suspect: func(node string, refused bool, reason string) {
			known := <-session
			session <- known
			known.Suspect(node, refused, reason)
		},
	})
	if err != nil {
		return fmt.Errorf("REKNIT_AGENT_LISTEN: %w", err)
	}
	address := config.Advertise
	if address == "" {
		address = t.watch.Address()
	}
	t.session, err = agent.Join(ctx, agent.Config{
		NATSURL: config.URL, NATSKit: config.Kit, Identity: identity, Cluster: config.Cluster, Node: t.node,
		Address: address, Site: config.Site,
		MemoryBytes: joining.MemoryBytes, Samples: joining.Samples, Job: job,
		Measure: t.watch.Measure, Started: config.started, Trained: kept, Past: past, Stuck: config.Stuck,
		Stays: config.Stays, Waits: t.wait, Late: t.late, Leaving: t.leaving, Neighbours: config.Neighbours,
		Snapshots: config.Snapshots, Consent: config.Consent, Memory: config.memory,
		Store: shards.StoreConfig{
			Host: config.listenHost(), Port: config.ShardPort, Dir: t.given.path,
		},
	})
	if err == nil {
		session <- t.session
	}
	return err
}

// run is the training loop, as the session sees it.
func (t *trainer) run() {
	defer t.close()
	err := t.loop()
	var gone exit
	hasEnded, isDone := errors.As(err, &gone), errors.Is(err, agent.ErrLeft) || errors.Is(err, agent.ErrComplete)
	t.keeps = !t.forgets.Load() && (hasEnded && gone.code != 0 || !isDone && t.state.handsOn())
	if hasEnded {
		if gone.code == 0 && !t.made {
			slog.Warn("the script ended with status 0, and the job is not complete: the others go on without it, and it is not "+
				"started again", "node", t.node)
		}
		t.exited(gone)
	}
	if isDone {
		t.watch.Close() // its peers need not suspect it
		t.lastOrder(err)
	}
	slog.Info("the session ends", "node", t.node, "reason", err)
	t.end(err)
}

func (t *trainer) loop() error {
	report, err := t.turns.report()
	t.state.givenUp(report.Ready)
	for err == nil {
		var orders agent.Orders
		orders, err = t.boundary(report.Done)
		if errors.Is(err, errLastWait) {
			slog.Warn("the last step is made, and nobody says that the job is complete", "node", t.node, "after", lastWait.String())
			_, err = t.turns.give(Order{Order: orderFinished})
			t.told = true
			continue
		}
		if err != nil {
			break
		}
		t.takeUp(orders)
		if orders.Switched {
			report.Done = orders.Plan.ResumeStep
		}
		if !t.complete(report.Done) { // else it was given other units, and nothing is left to train
			report, err = t.step(orders, report.Done)
		}
		if t.made = t.complete(report.Done); t.made && err == nil { // the trainer waits until all others have made their last step
			err = t.tellEnd(orders.Step, report.Done)
		}
	}
	if cause := context.Cause(t.ended); cause != nil {
		return cause
	}
	return err
}

func (t *trainer) complete(done uint64) bool { return t.job.Steps > 0 && done >= t.job.Steps }

// takeUp takes up a new plan, whose units the session has had adopted.
func (t *trainer) takeUp(orders agent.Orders) {
	if !orders.Switched {
		return
	}
	t.mutex.Lock()
	if t.rendezvous != nil {
		t.past = append(t.past, t.rendezvous)
	}
	t.plan, t.rendezvous = orders.Plan, nil
	t.mutex.Unlock()
	t.speed.Switch(orders.Plan, &t.job, t.node)
	t.state.note(orders.Plan, t.node)
	self, _ := orders.Plan.Member(t.node)
	t.watch.Switch(self.Incarnation, links.PeersOf(orders.Plan, t.node))
	t.sweep(mostPast)
}

const (
	sweepTimeout = 10 * time.Second
	mostPast     = 8 // plans under which no step was completed, of which values are kept
)

// sweep drops the values of all past plans but the last few. One at least is kept: when a step is completed, somebody
// that leaves may still be in the last step of the plan before.
func (t *trainer) sweep(kept int) {
	over := max(0, len(t.past)-kept)
	for _, past := range t.past[:over] {
		if t.plan.Pipelines[0].Stages[0].Node != t.node {
			break // one of all trainers does it
		}
		go func() {
			ctx, cancel := context.WithTimeout(t.ended, sweepTimeout)
			defer cancel()
			if err := past.Sweep(ctx); err != nil {
				slog.Debug("a generation's values are left to their age", "error", err)
			}
		}()
	}
	t.past = t.past[over:]
}

// step has the trainer train a step, and tells it when that is to be given up.
func (t *trainer) step(orders agent.Orders, done uint64) (Report, error) {
	t.mutex.Lock()
	t.stepping = orders.Step
	t.mutex.Unlock()
	id, err := t.turns.give(Order{Order: orderStep, Training: trainingOf(orders.Plan, t.node, done, orders.Switched)})
	if err != nil {
		return Report{}, err
	}
	t.state.begin(id, done)
	defer context.AfterFunc(orders.Step, func() { t.abort(id) })()
	report, err := t.turns.report()
	if err == nil {
		t.state.end() // else its script has ended in it
	}
	switch {
	case err != nil:
	case report.Done == done:
		t.state.givenUp(report.Ready)
		slog.Info("a step could not be completed, and is trained again", "node", t.node, "step", done,
			"because", cmp.Or(report.Broken, "another node is lost, or its step broke"))
		switch {
		case len(report.Outvoted) > 0 || report.Tied:
			t.session.Disputed(cmp.Or(report.Broken, "trainers would apply different things"), report.Outvoted)
		case orders.Step.Err() == nil:
			t.session.Broken(cmp.Or(report.Broken, "the trainer gave it up"))
		}
	default:
		t.state.completed(report.Done)
		t.session.Computed(report.ComputeSeconds)
		if report.LossNotFinite {
			report.Loss = math.NaN()
		}
		t.session.Report(report.Done, report.Seconds, report.Loss)
		if report.MicroBatches > 0 && report.ComputeSeconds > 0 {
			stage, _ := orders.Plan.Holds(t.node)
			t.speed.Meter.Pass(float64(report.MicroBatches)*t.job.MicroBatchSeconds(stage), report.ComputeSeconds)
		}
		t.profile(report)
		t.sweep(1)
		if !t.complete(report.Done) {
			err = t.compare(orders.Step, report.Done)
		}
	}
	return report, err
}

// profile tells what the trainer measured, where that is news.
func (t *trainer) profile(report Report) {
	told, news := t.speed.Step(report.Done)
	if len(report.Layers) > 0 {
		told, news = t.speed.Measured(report.Done, report.Layers, report.PeakBytes, report.OtherBytes)
	}
	if news {
		t.session.Profiled(told)
	}
}

// closeSession ends what the trainer had of the cluster.
func (t *trainer) closeSession() {
	if t.session != nil {
		t.session.Close()
	}
	if t.watch != nil {
		t.watch.Close()
	}
	t.given.remove()
}

// close ends all that the trainer had of its agent.
func (t *trainer) close() {
	t.closeSession()
	if t.keeps {
		if t.kept = t.state.surrender(); t.kept != nil {
			t.kept.process = t.session.Incarnation()
		}
	} else {
		t.state.close()
	}
}
