package agent

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/reknit/reknit/events"
)

// Boundary tells the trainer what to do next. It is called at the start and after every step, completed or
// abandoned, with the number of completed steps. It returns at once while nothing is to be done, and after the
// switch to a new plan otherwise; in between it gives and takes layers through state, on the caller's goroutine.
// It returns ErrLeft when the node is out of the cluster for good.
func (s *Session) Boundary(ctx context.Context, done uint64, state State) (Orders, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.view.cancelStep != nil {
		s.view.cancelStep()
	}
	s.view.done, s.view.cancelStep = done, nil
	if err := s.lend(state); err != nil {
		return Orders{}, err
	}
	for {
		if err := ctx.Err(); err != nil {
			return Orders{}, err
		}
		orders, ready, err := s.next(ctx, state)
		if ready || err != nil {
			return orders, err
		}
		s.answer()
		s.await(ctx)
	}
}

// await releases the mutex until there is news.
func (s *Session) await(ctx context.Context) {
	s.mutex.Unlock()
	select {
	case <-ctx.Done():
	case <-s.news:
	}
	s.mutex.Lock()
}

// next does the first thing that is due, and reports whether training may go on.
func (s *Session) next(ctx context.Context, state State) (orders Orders, ready bool, err error) {
	v := &s.view
	if v.refused != "" {
		return orders, false, fmt.Errorf("membership of %s refused: %s", s.config.Node, v.refused)
	}
	if v.leaving && v.newest() == nil {
		return orders, false, ErrLeft
	}
	if v.again {
		return orders, false, s.askAgain(ctx)
	}
	v.passOver()
	if v.following != nil && v.following.trail.due(v.done) {
		s.leaveTrail(state)
		return orders, false, nil
	}
	for v.mayAdopt(s.config.Node) {
		if err := s.adopt(ctx, state); err != nil {
			return orders, false, err
		}
	}
	if v.mustConsent() {
		s.consent(state.Holdings())
	}
	if v.schedule != nil && !v.moved && (v.hold > 0 || v.done == v.schedule.payload.StopStep || v.idle(s.config.Node)) {
		return orders, false, s.move(ctx, state)
	}
	if v.mustWait(s.config.Node, s.config.TotalSteps) {
		return orders, false, nil
	}
	return s.order(ctx), true, nil
}

// mayAdopt reports whether the committed plan takes over here: at its step, or where nothing is trained anyway.
func (v *view) mayAdopt(node string) bool {
	if len(v.next) == 0 {
		return false
	}
	endsHold := v.hold > 0 && v.next[0].Generation >= v.hold
	return endsHold || v.plan == nil || v.done == v.next[0].ResumeStep || v.idle(node)
}

// passOver skips a committed plan whose step this node will never reach, because a failure holds it before: the
// state stays as it is, and the next plan builds on what each node then says it holds.
func (v *view) passOver() {
	for len(v.next) > 0 && v.next[0].Generation < v.hold && v.next[0].ResumeStep != v.done && v.plan != nil {
		v.plan, v.digest, v.next = v.next[0].Plan, v.next[0].digest, v.next[1:]
	}
}

// mustConsent reports whether an opening that abandons the step waits for this node's holdings.
func (v *view) mustConsent() bool {
	return v.opening != nil && v.opening.payload.Abandon && !v.consented
}

// mustWait reports whether no step may be begun: there is no plan, or no place in it, or the node has promised to
// stop here, or training is complete. (A node that was given other layers after the last step has to tell their digests.)
func (v *view) mustWait(node string, totalSteps uint64) bool {
	complete := totalSteps > 0 && v.done >= totalSteps && !v.switched
	if v.plan == nil || v.hold > 0 || v.idle(node) || complete {
		return true
	}
	if len(v.next) > 0 {
		return v.done >= v.next[0].ResumeStep
	}
	if v.schedule != nil {
		return v.done >= v.schedule.payload.StopStep
	}
	return v.promise != nil && v.done >= *v.promise
}

// idle reports whether the plan in force gives the node nothing to train.
func (v *view) idle(node string) bool {
	if v.plan == nil {
		return true
	}
	_, placed := v.plan.Holds(node)
	return !placed
}

// order gives the go-ahead for a step under the plan in force.
func (s *Session) order(ctx context.Context) Orders {
	step, cancel := context.WithCancel(ctx)
	orders := Orders{Plan: s.view.plan, Switched: s.view.switched, Step: step}
	s.view.cancelStep, s.view.switched = cancel, false
	return orders
}

// adopt switches to the next committed plan. A node that a plan leaves out has left, or was given up while it lived:
// then it asks to join again.
func (s *Session) adopt(ctx context.Context, state State) error {
	v := &s.view
	plan, digest := v.next[0].Plan, v.next[0].digest
	if v.plan != nil && plan.Generation == v.plan.Generation+1 && plan.Parent != v.digest {
		return fmt.Errorf("plan %d: expected parent %s, got %s: the log went backwards", plan.Generation, v.digest, plan.Parent)
	}
	if !v.takesPart(plan.Nodes, s.config.Node) {
		return s.leftOut(ctx, plan)
	}
	layers := plan.UnitsOf(s.config.Node)
	if err := state.Adopt(layers, plan.ResumeStep); err != nil {
		return fmt.Errorf("plan %d: %w", plan.Generation, err)
	}
	v.plan, v.digest, v.next = plan, digest, v.next[1:]
	v.done, v.switched = plan.ResumeStep, true
	if v.opening == nil {
		v.promise = nil // it was kept
	}
	if plan.Generation >= v.hold {
		v.hold = 0
	}
	s.clock.switched(plan.Generation)
	slog.Info("plan adopted", "node", s.config.Node, "generation", plan.Generation, "step", plan.ResumeStep, "layers", layers)
	return nil
}

func (s *Session) leftOut(ctx context.Context, plan *events.Plan) error {
	v := &s.view
	if v.plan == nil {
		v.next = v.next[1:] // the joining node's own plan is still to come
		return nil
	}
	if v.leaving {
		return ErrLeft
	}
	slog.Warn("left out by the cluster; joining again", "node", s.config.Node, "generation", plan.Generation)
	return s.askAgain(ctx)
}

// askAgain asks for membership as a new incarnation. Called and returning with the mutex held.
func (s *Session) askAgain(ctx context.Context) error {
	s.mutex.Unlock()
	defer s.mutex.Lock()
	return s.ask(ctx)
}
