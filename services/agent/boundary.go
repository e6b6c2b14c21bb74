package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/machine"
)

// mostClaims is how many a consent may hold.
const mostClaims = 2 * events.MostUnits

// Boundary tells the trainer what to do next. It is called at the start and after every step, completed or
// abandoned, with the number of completed steps. It returns at once while nothing is to be done, and after the
// switch to a new plan otherwise; in between it gives and takes units through state, on the caller's goroutine. It
// returns ErrLeft when the node is out of the cluster for good, and ErrComplete when the job is done.
func (s *Session) Boundary(ctx context.Context, done uint64, state State) (Orders, error) {
	if _, able := state.(PreCopier); s.config.PreCopies && !able {
		return Orders{}, fmt.Errorf("agent: Config.PreCopies: expected a state that is a PreCopier, got %T", state)
	}
	s.untilCopied()
	s.tell(func() []machine.Action {
		s.loop.cancelled()
		s.loop.back()
		s.loop.state, s.loop.context, s.loop.done, s.loop.orders = state, ctx, done, nil
		return s.machine.Boundary(done)
	})
	slow := time.NewTicker(remindEvery)
	defer slow.Stop()
	for {
		if err := ctx.Err(); err != nil {
			return Orders{}, err
		}
		turn, orders, err := s.next()
		switch {
		case err != nil:
			if errors.Is(err, ErrLeft) || errors.Is(err, ErrComplete) {
				s.sendPulse() // the last: its silence is no failure
			}
			return Orders{}, err
		case turn != nil:
			s.untilCopied()
			turn(state)
			continue
		case orders != nil:
			return *orders, nil
		}
		select {
		case <-ctx.Done():
		case <-s.news:
		case <-slow.C:
			s.remind()
		}
	}
}

// sayRefused tells who reads the log what the cluster does not grant. Somebody else says so of requests to join and to leave:
// the machine, or askLater.
func (s *Session) sayRefused(event events.Event) {
	refusal, err := events.Open[events.Refusal](event)
	if err != nil || refusal.Refused == events.ChangeLeave || refusal.Refused == events.ChangeJoin && !refusal.OtherJob {
		return
	}
	if refusal.Refused == events.RefusedMembership && !strings.HasPrefix(refusal.Incarnation, s.process) {
		return // the process before this one
	}
	s.mutex.Lock()
	over := s.ended != nil
	s.mutex.Unlock()
	if !over {
		slog.Warn("refused", "node", refusal.Node, "request", refusal.Refused, "reason", refusal.Reason)
	}
}

// stays tells who asked to leave first, and who reads the log, that the node has to stay.
func (s *Session) stays(reason string) {
	if s.config.Stays != nil {
		s.config.Stays()
	}
	slog.Warn("the cluster does not let this node go, which trains on", "node", s.config.Node,
		"request", events.ChangeLeave, "reason", reason)
}

// next returns what the trainer's state is to do now, or what the loop does next, or neither while it has to wait.
func (s *Session) next() (turn, *Orders, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.ended != nil {
		return nil, nil, s.ended
	}
	if capture := s.dueCapture(); capture != nil {
		return capture, nil, nil
	}
	if len(s.loop.turns) > 0 {
		first := s.loop.turns[0]
		s.loop.turns = s.loop.turns[1:]
		return first, nil, nil
	}
	return nil, s.loop.orders, nil
}

// queue has the trainer's state do something at the boundary. Called with the mutex held.
func (s *Session) queue(turn turn) { s.loop.turns = append(s.loop.turns, turn) }

// train gives the go-ahead for a step. Called with the mutex held.
func (s *Session) train(action machine.Train) {
	s.granted()
	step, cancel := context.WithCancel(s.loop.context)
	s.loop.orders = &Orders{Plan: action.Plan, Switched: action.Switched, Abandoned: action.Abandoned, Step: step}
	s.loop.cancelled = cancel
	if action.Switched {
		s.pulses.moved = time.Now()
		s.sayAdopted(action.Plan)
		s.snapshots.Foresee(action.Plan, action.Digest)
	}
}

func (s *Session) sayAdopted(plan *events.Plan) {
	slog.Info("plan adopted", "node", s.config.Node, "generation", plan.Generation, "world", len(plan.HoldsOfAll()),
		"step", plan.ResumeStep, "units", plan.UnitsOf(s.config.Node))
}

func (s *Session) adopt(state State, task machine.Adopt) {
	if err := state.Adopt(task.Units, task.Step); err != nil {
		s.finish(machine.Failed{Task: task.Task, Reason: err.Error()})
		return
	}
	s.mutex.Lock()
	s.loop.done = task.Step
	s.granted()
	s.mutex.Unlock()
	s.finish(machine.Adopted{Task: task.Task})
}

// listTime is how long the tiers may take to list snapshots.
const listTime = 20 * time.Second

// told asks a state what it holds, and the tiers what can be read if nobody holds it.
func (s *Session) told(state State, task machine.Tell) machine.Told {
	told := held(state, task)
	if task.Snapshots {
		ctx, cancel := context.WithTimeout(s.context, listTime)
		defer cancel()
		told.Snapshots = s.snapshots.List(ctx, task.Complete)
	}
	return told
}

// held asks a state what it holds. A unit that it cannot give is not claimed.
func held(state State, task machine.Tell) machine.Told {
	told := machine.Told{Task: task.Task, Holdings: state.Holdings()}
	if !task.Claims {
		return told
	}
	for _, holding := range told.Holdings {
		for unit := holding.Units.First; unit < holding.Units.End; unit++ {
			for _, step := range holding.Steps {
				data, err := state.Export(unit, step)
				if err == nil && len(told.Claims) < mostClaims {
					told.Claims = append(told.Claims, events.Claim{Unit: unit, Step: step, Digest: events.DigestOfUnit(data)})
				}
			}
		}
	}
	return told
}
