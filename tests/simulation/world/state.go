package world

import (
	"fmt"
	"slices"

	"github.com/reknit/reknit/events"
)

// version is a unit of the state after so many steps.
type version struct{ step, value uint64 }

// state is what a model trainer holds, by the rules of services/trainer: of each unit the newest version and the one
// before, what a plan takes away until its first step is complete, and imports aside until they are adopted.
type state struct {
	job     *job
	fresh   bool        // nothing was adopted yet: every unit can be made at step 0
	trained []bool      // by unit
	kept    [][]version // by unit, newest first
	aside   []*version  // by unit: imported and verified, not adopted
}

func newState(j *job) *state {
	units := j.Units()
	return &state{job: j, fresh: true, trained: make([]bool, units), kept: make([][]version, units),
		aside: make([]*version, units)}
}

// holdings are the units and versions that can be given.
func (s *state) holdings() []events.Holding {
	if s.fresh {
		return []events.Holding{{Units: events.Range{First: 0, End: len(s.kept)}, Steps: []uint64{0}}}
	}
	var holdings []events.Holding
	for unit := range s.kept {
		steps := s.stepsOf(unit)
		last := len(holdings) - 1
		switch {
		case len(steps) == 0:
		case last >= 0 && holdings[last].Units.End == unit && slices.Equal(holdings[last].Steps, steps):
			holdings[last].Units.End++
		default:
			holdings = append(holdings, events.Holding{Units: events.Range{First: unit, End: unit + 1}, Steps: steps})
		}
	}
	return holdings
}

func (s *state) stepsOf(unit int) []uint64 {
	var steps []uint64
	if aside := s.aside[unit]; aside != nil {
		steps = append(steps, aside.step)
	}
	for _, kept := range s.kept[unit] {
		if !slices.Contains(steps, kept.step) {
			steps = append(steps, kept.step)
		}
	}
	slices.Sort(steps)
	slices.Reverse(steps)
	return steps
}

// find returns a unit at a step: what was verified rather than what was held all along, which may have gone astray.
func (s *state) find(unit int, step uint64) (version, bool) {
	if aside := s.aside[unit]; aside != nil && aside.step == step {
		return *aside, true
	}
	for _, kept := range s.kept[unit] {
		if kept.step == step {
			return kept, true
		}
	}
	return version{0, s.job.value(unit, 0)}, s.fresh && step == 0
}

// adopt makes these units at this step the ones to train.
func (s *state) adopt(units []events.Range, step uint64) error {
	adopted := make([]*version, len(s.kept))
	for unit := range events.Each(units) {
		found, ok := s.find(unit, step)
		if !ok && step > 0 {
			return fmt.Errorf("unit %d at step %d is neither held nor imported; held are %v", unit, step, s.stepsOf(unit))
		}
		adopted[unit] = &found
	}
	for unit, kept := range s.kept {
		s.kept[unit] = slices.DeleteFunc(kept, func(v version) bool {
			return adopted[unit] != nil && v.step == step || v.step != step && v.step+1 != step
		})
		s.trained[unit] = adopted[unit] != nil
		if s.trained[unit] {
			s.kept[unit] = slices.Insert(s.kept[unit], 0, *adopted[unit])
		}
	}
	s.fresh, s.aside = false, make([]*version, len(s.kept))
	return nil
}

// advance trains a unit one step, in a life.
func (s *state) advance(unit, life int) {
	s.kept[unit] = slices.Insert(s.kept[unit], 0, s.job.next(life, s.kept[unit][0]))
}

// completed drops all but the step and the one before of what is trained, and older imports.
func (s *state) completed(step uint64) {
	for unit, kept := range s.kept {
		s.kept[unit] = slices.DeleteFunc(kept, func(v version) bool { return !s.trained[unit] || v.step+1 < step })
		if aside := s.aside[unit]; aside != nil && aside.step+1 < step {
			s.aside[unit] = nil
		}
	}
}

// forget drops everything: what was held is known to be astray.
func (s *state) forget() {
	for unit := range s.kept {
		s.kept[unit], s.aside[unit], s.trained[unit] = nil, nil, false
	}
}

// digests are those of the units that are trained.
func (s *state) digests() []events.UnitDigest {
	var digests []events.UnitDigest
	for unit, trained := range s.trained {
		if trained {
			digests = append(digests, events.UnitDigest{Unit: unit, Digest: digestOf(s.kept[unit][0].value)})
		}
	}
	return digests
}
