package local

import (
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/outlive"
)

// kept is what is left of a trainer whose script has ended: units that others or the next script of its node may need.
type kept struct {
	files      *files
	generation uint64           // of the plan under which they were trained
	plan       *events.Plan     // that plan; nil where it is not known
	units      map[int]imported // by unit
	shared     bool             // others trained with the node, and may come back for it
	process    string           // incarnation of its trainer
	origin
}

// origin is the join of the script that trained a state.
type origin struct {
	joining Joining
	job     events.Job
}

// script is what is known of the trainer's script. Called with the mutex held.
func (s *state) script() outlive.Script {
	return outlive.Script{
		Phase: outlive.Phase(s.files.word(wordPhase)), Completed: s.files.word(wordCompleted),
		Stepping: s.order > 0, Index: s.index, Ordered: s.applies,
	}
}

// left returns what is whole of a state whose script has ended, but for a first state, which anybody can make. Called with the mutex held.
func (s *state) left() map[int]imported {
	units := map[int]imported{}
	if s.generation == 0 {
		return units
	}
	made, whole := s.script().Whole()
	isOut := s.copied && whole && s.files.word(wordOut) == made+1
	for unit, step := range s.held {
		written, isWritten := s.written[unit]
		switch {
		case s.unmade[unit], s.trained[unit] && !whole:
			continue
		case s.trained[unit] && s.order > 0 && (!s.copied || isOut && !s.inOwn(unit)):
			step = made
		case s.copied && (!isWritten || written != step || s.inOwn(unit)):
			continue
		}
		units[unit] = imported{step, s.files.units[unit]}
	}
	for unit, aside := range s.aside {
		if own, is := units[unit]; !is || own.step < aside.step {
			units[unit] = aside
		}
	}
	maps.DeleteFunc(units, func(_ int, one imported) bool { return one.step == 0 })
	return units
}

// leaves reports whether a script that ends now leaves something whole.
func (s *state) leaves() bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return !s.closed && len(s.left()) > 0
}

// A process that has closed its session may take a moment to end: PyTorch's interpreter does, and the kernel gives its memory back.
const (
	endsWithin = 5 * time.Second
	endsLook   = 10 * time.Millisecond
)

// surrender closes the state of a script that has ended, and returns what it left; nil for nothing. The files of a
// process that lives on are left to it.
func (s *state) surrender() *kept {
	isHandedOver := s.handsOn()
	inUse := func() bool { return !isHandedOver && s.files.dir.inUse() } // where what it was handed lies, a script never writes
	for until := time.Now().Add(endsWithin); inUse() && time.Now().Before(until); {
		time.Sleep(endsLook)
	}
	s.mutex.Lock()
	k := &kept{files: s.files, generation: s.generation, plan: s.plan, units: s.left(), shared: s.shared, origin: s.origin}
	if len(k.units) == 0 || inUse() {
		s.mutex.Unlock()
		s.close()
		return nil
	}
	defer s.mutex.Unlock()
	s.closed = true
	for unit := range s.files.units {
		if isHandedOver && !s.inOwn(unit) {
			s.files.release(unit) // the first state of a script that takes no part
		}
	}
	s.files.unnote() // of the control page, which says nothing of what was imported
	slog.Info("the state of a script that has ended is kept", "dir", s.files.dir.path, "steps", k.steps(), "generation", k.generation)
	return k
}

// handsOn reports whether the state is what a script before left, and the one that was handed it has not taken it up.
func (s *state) handsOn() bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.handed
}

// steps returns at which steps the units stand.
func (k *kept) steps() []uint64 {
	steps := map[uint64]bool{}
	for _, unit := range k.units {
		steps[unit.step] = true
	}
	return slices.Sorted(maps.Keys(steps))
}

// sizes returns the bytes of each unit.
func (k *kept) sizes() []int64 {
	var sizes []int64
	for _, unit := range k.files.units {
		sizes = append(sizes, int64(len(unit)))
	}
	return sizes
}

// fits returns an error where the script that joins has other units.
func (k *kept) fits(joining Joining) error {
	if sizes := k.sizes(); !slices.Equal(sizes, joining.Units) {
		return errOrder{fmt.Sprintf("units: expected %.200s, as of the script before, whose state is kept for others, got %.200s",
			fmt.Sprint(sizes), fmt.Sprint(joining.Units)),
			"join with the same units, or end the agent: by two signals it forgets that state"}
	}
	return nil
}

// handOver moves the units beside those of another trainer, as what was imported there, and gives all else back.
func (k *kept) handOver(to *state) {
	to.mutex.Lock()
	defer to.mutex.Unlock()
	clear(to.held) // a first state, which nobody needs
	to.fresh, to.generation, to.plan, to.shared = false, k.generation, k.plan, k.shared
	to.handed, to.origin = true, k.origin
	to.files.unnote()
	for unit, one := range k.units {
		memory, err := k.move(unit, one.memory, to.files)
		if err != nil {
			slog.Error("a unit that a script left is not kept", "unit", unit, "step", one.step, "error", err)
			continue
		}
		to.aside[unit] = imported{one.step, memory}
	}
	k.files.remove()
}

// move has a unit be another version of one in other files.
func (k *kept) move(unit int, memory []byte, to *files) ([]byte, error) {
	from := filepath.Join(k.files.dir.path, unitName(unit))
	other := k.files.news[unit]
	isOther := other != nil && &memory[0] == &other[0]
	switch {
	case isOther:
		from += newSuffix
	case &memory[0] != &k.files.units[unit][0]: // it lies in no file
		copied, err := to.another(unit)
		copy(copied, memory)
		return copied, err
	}
	if err := os.Rename(from, filepath.Join(to.dir.path, unitName(unit)+newSuffix)); err != nil {
		return nil, err
	}
	if isOther {
		delete(k.files.news, unit)
	} else {
		k.files.units[unit] = nil // it is not unmapped with the others
	}
	to.news[unit] = memory
	return memory, nil
}
