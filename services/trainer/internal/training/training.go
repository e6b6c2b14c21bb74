// Package training is the trainer's loop: at each step boundary it asks its session what to do, then runs the step
// with the nodes of the plan, until training is complete or the node has left.
//
// A step can be given up in any of its phases. The layers that it leaves behind, of which some are a step ahead, are
// told to the session at the boundary. The next plan says which version everybody goes on with.
package training

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent"
	"github.com/reknit/reknit/services/trainer/internal/state"
	"github.com/reknit/reknit/services/trainer/internal/transport"
	"github.com/reknit/reknit/services/trainer/model"
	"github.com/reknit/reknit/services/trainer/text"
)

// Config is what is trained, and by whom.
type Config struct {
	Node        string
	Shape       model.Shape
	Adam        model.Adam
	Seed        uint64
	GlobalBatch int    // samples a step
	MicroBatch  int    // samples of one pass
	Steps       uint64 // training ends there
	// CompareEvery is after how many steps replicas are compared; zero: only where layers moved.
	CompareEvery uint64
	Samples      *text.Text
	Job          events.Job // what the cluster is told of it
}

// Session is what the loop needs of its agent (*agent.Session).
type Session interface {
	Boundary(ctx context.Context, done uint64, state agent.State) (agent.Orders, error)
	Computed(seconds float64)
	Report(step uint64, stepSeconds, loss float64)
	Broken(reason string)
	Profiled(profile events.Profile)
	Digested(ctx context.Context, step uint64, final bool, layers []events.UnitDigest) error
}

// Network is what the loop needs of its data plane (*transport.Transport).
type Network interface {
	Switch(generation uint64, incarnation string, peers []transport.Peer)
	Begin(step uint64)
	Send(to string, phase uint32, item uint64, payload []byte) error
	Take(phase uint32) (transport.Message, bool)
	Receive(ctx context.Context, phase uint32) (transport.Message, error)
	SetHungerLimit(limit time.Duration)
}

// Trainer is one node's training.
type Trainer struct {
	config  Config
	session Session
	network Network
	state   *state.State
	worker  *worker
	pace    pace

	generation uint64 // of the plan under which steps run
	done       uint64 // completed steps
	broken     bool   // the last step was given up
	digested   bool   // the present final layers were told
	complete   chan struct{}
	logged     time.Time // a step
}

// logEvery bounds how often a completed step is logged: a sign of life for who reads the log.
const logEvery = 10 * time.Second

// New returns a trainer that holds nothing yet.
func New(config Config, session Session, network Network) *Trainer {
	held := state.New(config.Shape, config.Seed)
	return &Trainer{
		config: config, session: session, network: network, state: held,
		worker: newWorker(config, network, held), complete: make(chan struct{}),
	}
}

// Complete is closed when all steps were done and their digests told. (A failure in the last step may still take the
// node back to it.)
func (t *Trainer) Complete() <-chan struct{} { return t.complete }

// Run trains until the node has left the cluster or the job is complete (nil), or ctx ends. After the last step it stays at
// the boundary until all others have made theirs: a change may still need its layers.
func (t *Trainer) Run(ctx context.Context) error {
	for {
		orders, err := t.session.Boundary(ctx, t.done, lentState{t.state, t.worker})
		if errors.Is(err, agent.ErrLeft) || errors.Is(err, agent.ErrComplete) {
			slog.Info("the trainer ends", "node", t.config.Node, "step", t.done, "because", err)
			return nil
		}
		if err != nil {
			return err
		}
		if err := t.takeUp(orders.Plan); err != nil {
			return err
		}
		if orders.Switched && len(orders.Plan.Migration.Transfers) > 0 {
			err = t.compare(ctx)
		}
		if err == nil && t.done < t.config.Steps {
			err = t.train(ctx, orders.Step)
		}
		if err == nil && t.done == t.config.Steps {
			err = t.digest(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// takeUp takes up a new plan, whose layers the session has had adopted.
func (t *Trainer) takeUp(plan *events.Plan) error {
	if plan.Generation == t.generation {
		if t.broken {
			return fmt.Errorf("step %d was given up in generation %d: expected a new plan to go on with",
				t.done, plan.Generation)
		}
		return nil
	}
	assignment, err := assign(plan, t.config)
	if err != nil {
		return fmt.Errorf("plan %d: %w", plan.Generation, err)
	}
	self, _ := plan.Member(t.config.Node)
	t.worker.take(assignment)
	t.worker.speed.Switch(plan, &t.config.Job, t.config.Node)
	t.network.Switch(plan.Generation, self.Incarnation, assignment.peers)
	t.generation, t.done, t.broken, t.digested = plan.Generation, plan.ResumeStep, false, false
	return nil
}

// train runs the next step. One that is given up is no error: the session knows why, and what comes next.
func (t *Trainer) train(ctx, step context.Context) error {
	start := time.Now()
	loss, err := t.worker.step(step, t.done)
	if err != nil {
		t.broken = true
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if step.Err() == nil {
			slog.Warn("step broke", "node", t.config.Node, "step", t.done, "error", err)
			t.session.Broken(err.Error())
			return nil
		}
		slog.Info("step given up", "node", t.config.Node, "step", t.done)
		return nil
	}
	t.done++
	t.state.Completed(t.done)
	seconds := time.Since(start).Seconds()
	t.network.SetHungerLimit(t.pace.hungerLimit(seconds))
	if told, news := t.worker.speed.Step(t.done); news {
		t.session.Profiled(told)
	}
	t.session.Computed(t.worker.passed.Seconds())
	t.session.Report(t.done, seconds, loss)
	if time.Since(t.logged) >= logEvery {
		t.logged = time.Now()
		about := []any{"node", t.config.Node, "step", t.done, "of", t.config.Steps, "seconds", seconds}
		if loss > 0 { // else another stage knows it
			about = append(about, "loss", loss)
		}
		slog.Info("step completed", about...)
	}
	if every := t.config.CompareEvery; every > 0 && t.done%every == 0 && t.done < t.config.Steps {
		return t.compare(ctx)
	}
	return nil
}

// compare tells the layers' digests, so that somebody notices should replicas differ.
func (t *Trainer) compare(ctx context.Context) error {
	return t.session.Digested(ctx, t.done, false, t.state.Digests())
}

// digest tells the final layers' digests, once.
func (t *Trainer) digest(ctx context.Context) error {
	if t.digested {
		return nil
	}
	if err := t.session.Digested(ctx, t.done, true, t.state.Digests()); err != nil {
		return err
	}
	t.digested = true
	slog.Info("training is complete here; layers stay until it is for all others, in case a change needs them, "+
		"or until it is asked to end", "node", t.config.Node, "step", t.done)
	select {
	case <-t.complete:
	default:
		close(t.complete)
	}
	return nil
}
