package agent

import (
	"context"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/machine"
)

// tellsSoon is how long a trainer may take to give up its step, and its state to tell what it holds, until the agent
// says that its consent comes later: the negotiator waits for five seconds.
const tellsSoon = 2 * time.Second

// Freezer is a State that can be told without the training loop. A trainer in a step that it cannot interrupt, a long
// kernel say, keeps nobody waiting for its consent then.
type Freezer interface {
	State
	// Freeze returns what is held from now until the next Boundary, and true; or false where the step under way may still
	// be completed. It is called when the step's context has ended, from any goroutine, and waits for nothing.
	Freeze() ([]events.Holding, bool)
}

// Behinder is a State that knows whether its script has made the step that it is in, and does something else behind it. It is called
// from any goroutine, and waits for nothing.
type Behinder interface {
	State
	Behind() bool
}

// Worker is a State that knows what its trainer does in its step: events.PhaseComputing or PhaseWaiting; PhaseBetween where it was
// told to train and does neither; or nothing. One that computes while others wait for it and wait is told as hanging, and one that is
// between steps is named. It is called from any goroutine, and waits for nothing.
type Worker interface {
	State
	Phase() string
}

// Broken tells that the step under way cannot end, though nobody said that it is to be given up: a collective broke
// that cannot be resumed, or timed out. It is called before Boundary, which then returns with the plan for which all
// give up their step. It has no effect if the step's context has ended.
func (s *Session) Broken(reason string) {
	s.tell(func() []machine.Action { return s.machine.Broken(time.Now(), reason) })
}

// Disputed tells that the step under way is not made because trainers would apply different things, by settings that differ for
// example: the outvoted nodes, or nobody where no side is the majority. The cluster goes on without the former, and holds in a tie.
// It is called as Broken is, also where the step's context has ended.
func (s *Session) Disputed(reason string, outvoted []string) {
	s.tell(func() []machine.Action { return s.machine.Disputed(time.Now(), reason, outvoted) })
}

// Stop returns the step, in completed ones, at which training stops or the next plan takes over; known is false where
// none is. It is for steps that have no end of their own.
func (s *Session) Stop() (step uint64, known bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	stop := s.machine.Snapshot().Stop
	if stop == nil {
		return 0, false
	}
	return *stop, true
}

// Exited tells that the trainer's process is gone: its parent says so, or who held its socket. The exit code is that of
// os.ProcessState, -1 where a signal ended it. It returns when the cluster's log has that, or ctx ends. The session is
// over; a trainer that is started again takes another Join.
func (s *Session) Exited(ctx context.Context, reason string, exitCode int) error {
	return s.exited(ctx, func(now time.Time) []machine.Action { return s.machine.Exited(now, reason, exitCode) })
}

// Failed tells what Exited does, of a script that its agent gives each step to and that did not end well. If the agent keeps the state that
// it left, who waits for what it held waits for the next Join. The exit code is 128 and the signal where a fault of its own raised one.
// inStep says that the script told its error before it was told to give the step up.
func (s *Session) Failed(ctx context.Context, reason string, exitCode int, inStep, keeps bool) error {
	return s.exited(ctx, func(now time.Time) []machine.Action { return s.machine.Failed(now, reason, exitCode, inStep, keeps) })
}

// Incarnation returns that of the process, as the cluster knows it.
func (s *Session) Incarnation() string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.machine.Snapshot().Incarnation
}

// Stood tells for how long the trainer's process has done nothing: Exited or Failed, called next, is to say so.
func (s *Session) Stood(long time.Duration) {
	s.tell(func() []machine.Action {
		s.machine.Stood(long.Seconds())
		return nil
	})
}

func (s *Session) exited(ctx context.Context, tell func(time.Time) []machine.Action) error {
	var said []events.Event
	s.tell(func() (others []machine.Action) {
		for _, action := range tell(time.Now()) {
			if say, says := action.(machine.Say); says {
				said = append(said, say.Event)
			} else {
				others = append(others, action)
			}
		}
		return others
	})
	s.cancel() // heartbeats and answers end
	for _, event := range said {
		if err := s.insist(ctx, event); err != nil {
			return err
		}
	}
	return nil
}

// watch waits for a trainer that gives up its step. It answers for it where its state can be told without it, and says
// else that the consent comes later; a trainer that takes too long is given up. Called with the mutex held.
func (s *Session) watch(within time.Duration) {
	ctx, back := context.WithCancel(s.context)
	after := func(wait time.Duration, tell func() []machine.Action) {
		timer := time.AfterFunc(wait, func() {
			s.tell(func() []machine.Action {
				if ctx.Err() != nil {
					return nil // the trainer came to its boundary meanwhile
				}
				return tell()
			})
		})
		context.AfterFunc(ctx, func() { timer.Stop() })
	}
	after(tellsSoon, s.machine.Late)
	after(within, func() []machine.Action { return s.machine.Hung(time.Now()) })
	if behinder, able := s.loop.state.(Behinder); able {
		after(s.machine.AwayAfter(), func() []machine.Action {
			if !behinder.Behind() {
				return nil
			}
			return s.machine.Away(time.Now())
		})
	}
	s.loop.back = back
	freezer, able := s.loop.state.(Freezer)
	if !able {
		return
	}
	if holdings, frozen := freezer.Freeze(); frozen {
		for _, action := range s.machine.Frozen(holdings) {
			s.do(action)
		}
	}
}
