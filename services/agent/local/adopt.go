package local

import (
	"errors"
	"fmt"

	"github.com/reknit/reknit/events"
)

// errNoVersion says that a plan was made with what this trainer does not have.
var errNoVersion = errors.New("expected it held or imported")

// Adopt brings each unit to the step, and has the trainer go on from there.
func (s *state) Adopt(units []events.Range, step uint64) error {
	for unit := range events.Each(units) {
		s.mutex.Lock()
		kept, isAside := s.aside[unit]
		s.mutex.Unlock()
		if isAside && kept.step == step {
			continue
		}
		if err := s.reach(unit, step); err != nil {
			return err
		}
	}
	took, err := s.take(units, step)
	if err != nil {
		return err
	}
	if !s.fresh && !s.trains(units) {
		s.files.unnote() // until note says what they are
	}
	if err := s.ask(Order{Order: orderAdopt, Step: step, Took: took}); err != nil {
		return err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.fresh, s.ready = false, false
	clear(s.trained)
	for unit := range events.Each(units) {
		s.trained[unit], s.held[unit] = true, step
	}
	return nil
}

// trains reports whether these are the units of the plan in force.
func (s *state) trains(units []events.Range) bool {
	count := 0
	for unit := range events.Each(units) {
		if !s.trained[unit] {
			return false
		}
		count++
	}
	return count == len(s.trained)
}

// note records what was adopted, under which plan.
func (s *state) note(plan *events.Plan, node string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if !s.closed {
		s.generation, s.plan, s.shared = plan.Generation, plan, s.shared || len(plan.Nodes) > 1
		s.files.note(record{plan.Generation, plan, plan.UnitsOf(node)})
	}
}

// take makes imports of the step the state, in the units' files, and returns which they are.
func (s *state) take(units []events.Range, step uint64) (took []int, err error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for unit := range events.Each(units) {
		kept, isAside := s.aside[unit]
		held, isHeld := s.held[unit]
		switch {
		case isAside && kept.step == step:
			s.files.unnote()
			if !s.inOwn(unit) {
				if err := s.files.take(unit); err != nil {
					return nil, err
				}
				copy(s.files.units[unit], kept.memory)
			}
			took = append(took, unit)
			delete(s.unmade, unit)
			s.held[unit], s.written[unit] = step, step
		case !isHeld || held != step:
			return nil, fmt.Errorf("adoption of unit %d at step %d: %w, got %v", unit, step, errNoVersion, s.steps(unit))
		}
	}
	for unit := range s.files.units {
		s.forget(unit)
	}
	s.handed, s.origin = false, s.own
	return took, nil
}

// Forget drops all that is held.
func (s *state) Forget() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.files.unnote()
	clear(s.held)
	clear(s.written)
	s.fresh, s.ready = false, false
	for unit := range s.files.units {
		s.forget(unit)
	}
}
