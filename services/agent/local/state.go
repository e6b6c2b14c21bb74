package local

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/reknit/reknit/events"
)

// asks has the trainer do an order, and returns once it has.
type asks func(Order) error

// state is a trainer's state as its agent sees it: which step each unit is at, and the memory that both map. It is an
// agent.State, and lends the memory into which units are fetched.
//
// Each unit has one version, and beside it at most one that was imported. A trainer that is ready can make one step
// more of all that it trains, once. A lazy one makes the first state of a unit when that is asked for, and a unit that
// it does not hold has no memory.
type state struct {
	files  *files
	copied bool // the trainer's state is elsewhere, and in the files what was given or taken
	ask    asks

	mutex   sync.Mutex
	closed  bool             // nothing is mapped any more
	order   uint64           // of the step under way; zero for none
	index   uint64           // completed steps before it
	applies bool             // the trainer was told to make a step of its sums, and has not reported on that
	fresh   bool             // nothing was adopted yet
	held    map[int]uint64   // by unit: its step, of what the trainer has
	trained map[int]bool     // the units of the plan in force
	ready   bool             // the trainer can make the next step of what it trains
	aside   map[int]imported // by unit: what was imported and not adopted
	written map[int]uint64   // by unit, of copied state: the step that its file has
	unmade  map[int]bool     // units of lazy state whose first one is not in their file yet

	generation uint64       // of the plan under which all of that is trained; zero: none
	plan       *events.Plan // that plan; nil where it is not known
	shared     bool         // others trained it, too, under that plan or one before
	handed     bool         // it is what another script left, and not taken up yet
	origin                  // of what is held
	own        origin       // of the trainer
}

// imported is a unit that was fetched and verified.
type imported struct {
	step   uint64
	memory []byte
}

// newState returns the state of a trainer that has units as a record says; a lazy one makes the first state of a unit
// when it is asked to.
func newState(files *files, copied, lazy bool, ask asks, kept record) *state {
	s := &state{
		files: files, copied: copied, ask: ask, fresh: kept.Generation == 0,
		held: map[int]uint64{}, trained: map[int]bool{}, aside: map[int]imported{}, written: map[int]uint64{},
		unmade: map[int]bool{}, generation: kept.Generation, plan: kept.Plan,
	}
	for unit := range events.Each(kept.Units) {
		s.held[unit] = files.word(wordCompleted)
		if s.fresh {
			s.unmade[unit] = lazy
		} else {
			s.trained[unit] = true
		}
	}
	return s
}

// begin notes that the trainer was told to train a step.
func (s *state) begin(order, index uint64) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.order, s.index = order, index
}

// end notes that the trainer has reported on its step.
func (s *state) end() { s.begin(0, 0) }

// abort writes on the control page that a step is to be given up.
func (s *state) abort(order uint64) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if !s.closed {
		s.files.setWord(wordAbort, order)
	}
}

// The phases of a trainer, as it writes them on the control page.
const phaseInStep = 1

// workNames are what a trainer does in its step, by the word on the control page.
var workNames = map[uint64]string{0: events.PhaseBetween, 1: events.PhaseComputing, 2: events.PhaseWaiting}

// Phase returns what the trainer says that it does in its step; nothing while the state is busy, or the trainer is in no step.
func (s *state) Phase() string {
	if !s.mutex.TryLock() {
		return ""
	}
	defer s.mutex.Unlock()
	if s.closed || s.order == 0 {
		return ""
	}
	return workNames[s.files.word(wordWork)]
}

// Freeze answers for a trainer that is in its step: once the abort is written it does not begin to apply its sums, for
// it looks there after it has said that it does.
func (s *state) Freeze() ([]events.Holding, bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.closed || s.order == 0 {
		return nil, false
	}
	s.files.setWord(wordAbort, s.order)
	if s.files.word(wordPhase) != phaseInStep || s.files.word(wordCompleted) != s.index {
		return nil, false
	}
	s.ready = s.files.word(wordReady) == s.index+1
	return s.holdings(), true
}

// Behind reports whether the trainer has made the step that it was told to train, and has not reported on it.
func (s *state) Behind() bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.closed || s.order == 0 {
		return false
	}
	step, whole := s.script().Whole()
	return whole && step == s.index+1
}

// step returns how many steps the trainer says that it has completed.
func (s *state) step() uint64 {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.closed {
		return 0
	}
	return s.files.word(wordCompleted)
}

// close gives the memory back. The files of a trainer that lives are left for it to join again with.
func (s *state) close() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.closed = true
	s.files.close()
}

// completed notes that the trainer has completed a step. Units that it does not train are needed no more, nor is their
// memory.
func (s *state) completed(step uint64) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.ready, s.applies = false, false
	clear(s.written)
	for unit := range s.files.units {
		if s.trained[unit] {
			s.held[unit] = step
		} else {
			delete(s.held, unit)
		}
		if kept, ok := s.aside[unit]; ok && kept.step+1 < step {
			s.forget(unit)
		}
		if !s.trained[unit] && !s.inOwn(unit) {
			s.files.release(unit)
		}
	}
}

// inOwn reports whether what was imported of a unit lies in its own file. Called with the mutex held.
func (s *state) inOwn(unit int) bool {
	kept, isAside := s.aside[unit]
	return isAside && &kept.memory[0] == &s.files.units[unit][0]
}

// givenUp notes that a step was given up, and whether the trainer is ready to make it.
func (s *state) givenUp(ready bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.ready = ready
}

// Holdings returns each unit's versions, newest first.
func (s *state) Holdings() []events.Holding {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.holdings()
}

func (s *state) holdings() []events.Holding { return events.HoldingsOf(len(s.files.units), s.steps) }

func (s *state) steps(unit int) []uint64 {
	var steps []uint64
	if kept, ok := s.aside[unit]; ok {
		steps = append(steps, kept.step)
	}
	if step, ok := s.held[unit]; ok {
		steps = append(steps, step)
		if s.ready && s.trained[unit] {
			steps = append(steps, step+1)
		}
	}
	slices.Sort(steps)
	steps = slices.Compact(steps)
	slices.Reverse(steps)
	return steps
}

// Export returns a unit's memory. The trainer does not write there before the next plan is adopted.
func (s *state) Export(unit int, step uint64) ([]byte, error) {
	if unit < 0 || unit >= len(s.files.units) {
		return nil, fmt.Errorf("export of unit %d: expected one of %d", unit, len(s.files.units))
	}
	if err := s.reach(unit, step); err != nil {
		return nil, err
	}
	s.mutex.Lock()
	kept, isAside := s.aside[unit]
	held, isHeld := s.held[unit]
	written, isWritten := s.written[unit]
	s.mutex.Unlock()
	switch {
	case isAside && kept.step == step:
		return kept.memory, nil
	case !isHeld || held != step:
		return nil, fmt.Errorf("export of unit %d at step %d: expected one of %v", unit, step, s.Holdings())
	case !s.copied || isWritten && written == step:
		return s.files.units[unit], nil
	}
	return s.give(unit, step)
}

// phaseApplying is the first of the phases in which a trainer changes its units.
const phaseApplying = 2

// Still has the trainer wait with its sums until the units of the state are copied. Copied state does not live there: a script writes
// there by itself only where it ends.
func (s *state) Still() (release func() error) {
	if s.copied {
		return s.untouched
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	at := s.files.word(wordCompleted)
	s.files.setWord(wordStill, 1)
	return func() error {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		defer s.files.setWord(wordStill, 0)
		if completed := s.files.word(wordCompleted); completed != at || s.files.word(wordPhase) >= phaseApplying {
			return fmt.Errorf("the trainer changed its units of step %d while they were copied: expected it to wait for word %d of the control page",
				at, wordStill)
		}
		return nil
	}
}

// untouched returns an error where a script that ends has begun to copy its state out: what was read meanwhile is of two steps.
func (s *state) untouched() error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.files.word(wordOut) != 0 {
		return errors.New("the script ended, and copied its state out, while its units were copied")
	}
	return nil
}

// reach has a trainer that is ready make the step where it is the one asked for, and a lazy one the first state.
func (s *state) reach(unit int, step uint64) error {
	s.mutex.Lock()
	held, isHeld := s.held[unit]
	first := s.unmade[unit] && isHeld && held == step
	due := s.ready && s.trained[unit] && isHeld && held+1 == step
	s.mutex.Unlock()
	if first {
		return s.makeFirst(unit)
	}
	if !due {
		return nil
	}
	s.mutex.Lock()
	s.applies = true
	s.mutex.Unlock()
	if err := s.ask(Order{Order: orderApply, Step: step}); err != nil {
		return err
	}
	s.completed(step)
	return nil
}

// give has the trainer copy a unit into its file.
func (s *state) give(unit int, step uint64) ([]byte, error) {
	s.mutex.Lock()
	memory, err := s.spare(unit)
	s.mutex.Unlock()
	if err != nil {
		return nil, err
	}
	if &memory[0] != &s.files.units[unit][0] {
		return nil, fmt.Errorf("unit %d: its file holds what was taken for step %d", unit, s.aside[unit].step)
	}
	if err := s.ask(Order{Order: orderGive, Step: step, Units: []int{unit}}); err != nil {
		return nil, err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.written[unit] = step
	return memory, nil
}

// makeFirst has a lazy trainer write the first state of a unit into its file.
func (s *state) makeFirst(unit int) error {
	s.mutex.Lock()
	err := s.files.take(unit)
	s.mutex.Unlock()
	if err != nil {
		return err
	}
	if err := s.ask(Order{Order: orderGive, Units: []int{unit}}); err != nil {
		return err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	delete(s.unmade, unit)
	return nil
}

// Lend returns the unit's own file where nothing of worth is in it.
func (s *state) Lend(unit int, bytes int64) ([]byte, error) {
	if unit < 0 || unit >= len(s.files.units) || bytes != int64(len(s.files.units[unit])) {
		return nil, fmt.Errorf("unit %d of %d bytes: expected one of those that the trainer joined with", unit, bytes)
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.fresh && len(s.held) > 0 { // a cluster that has units to give is past what a newcomer makes by itself
		s.files.unnote()
		clear(s.held)
	}
	delete(s.written, unit)
	return s.spare(unit)
}

// spare returns memory of a unit that nothing counts on. Called with the mutex held.
func (s *state) spare(unit int) ([]byte, error) {
	own := s.files.units[unit]
	_, isHeld := s.held[unit]
	kept, isAside := s.aside[unit]
	if (!isHeld || s.copied) && !s.inOwn(unit) {
		return own, s.files.take(unit)
	}
	other, err := s.files.another(unit)
	if err != nil || !isAside || &kept.memory[0] != &other[0] {
		return other, err
	}
	return make([]byte, len(own)), nil
}

// Import keeps a unit where it was fetched. It may have been fetched elsewhere, where two imports are kept already.
func (s *state) Import(unit int, step uint64, data []byte) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	before, isAside := s.aside[unit]
	if isAside && &data[0] != &s.files.units[unit][0] && !s.inAnother(unit, data) {
		copy(before.memory, data)
		data = before.memory
	}
	s.aside[unit] = imported{step, data}
	return nil
}

func (s *state) inAnother(unit int, data []byte) bool {
	other := s.files.news[unit]
	return other != nil && &other[0] == &data[0]
}

// forget drops what was imported of a unit. Called with the mutex held.
func (s *state) forget(unit int) {
	delete(s.aside, unit)
	s.files.drop(unit)
}
