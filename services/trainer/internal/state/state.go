// Package state keeps the units of a model's state (see package model) that a node trains: the newest version of each,
// and the one before for a roll-back.
//
// A step updates unit by unit, so a node that is interrupted may hold some units one step further than others. The
// holdings say so, and whoever plans the recovery chooses the version that all units can have. Units that a plan takes
// away are kept until its first step is complete: should their new holder die before, they are still here.
package state

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/trainer/model"
)

// Versions is how many versions of each unit are kept beside the one to train.
const Versions = 1

// State is the units of one node. Versions are completed steps. It serves one goroutine.
type State struct {
	shape   model.Shape
	seed    uint64
	fresh   bool                   // nothing was adopted yet
	trained map[int]*model.Layer   // by unit: the version to train
	kept    map[int][]*model.Layer // by unit: the versions to give, newest first
	aside   map[int]*model.Layer   // by unit: the last import that was not adopted
}

// New returns the state of a node that was not given any units: it can make every unit at version 0.
func New(shape model.Shape, seed uint64) *State {
	return &State{
		shape: shape, seed: seed, fresh: true,
		trained: map[int]*model.Layer{}, kept: map[int][]*model.Layer{}, aside: map[int]*model.Layer{},
	}
}

// Holdings returns the units and versions that Export can give, newest first, as ranges of units with equal versions.
// Units that were imported and not adopted are among them: should the attempt that asked for them fail, the next one
// need not fetch them again.
func (s *State) Holdings() []events.Holding {
	return events.HoldingsOf(s.shape.Units(), func(unit int) (steps []uint64) {
		for _, version := range s.versions(unit) {
			steps = append(steps, uint64(version.Step))
		}
		if s.fresh && !slices.Contains(steps, 0) {
			steps = append(steps, 0)
		}
		return steps
	})
}

// versions returns what is held of a unit, newest first. An import was verified: it stands for what was held at its
// step.
func (s *State) versions(unit int) []*model.Layer {
	imported := s.aside[unit]
	if imported == nil {
		return s.kept[unit]
	}
	versions := []*model.Layer{imported}
	for _, version := range s.kept[unit] {
		if version.Step != imported.Step {
			versions = append(versions, version)
		}
	}
	slices.SortFunc(versions, func(a, b *model.Layer) int { return cmp.Compare(b.Step, a.Step) })
	return versions
}

// Export returns the canonical bytes of a unit at a version that Holdings names.
func (s *State) Export(unit int, step uint64) ([]byte, error) {
	if version := s.held(unit, step); version != nil {
		return model.MarshalLayer(version), nil
	}
	if s.fresh && step == 0 {
		made, err := model.NewLayer(s.shape, unit, s.seed)
		if err != nil {
			return nil, err
		}
		return model.MarshalLayer(made), nil
	}
	return nil, fmt.Errorf("export of unit %d at step %d: expected one of %v", unit, step, s.Holdings())
}

// Import keeps a unit aside until Adopt, in place of an older import of it. Bytes that are not that unit at that
// version, of a model of this shape, are an error.
func (s *State) Import(unit int, step uint64, data []byte) error {
	imported, err := model.UnmarshalLayer(data)
	if err != nil {
		return err
	}
	if imported.Index != unit || uint64(imported.Step) != step || imported.Shape != s.shape {
		return fmt.Errorf("import of unit %d at step %d of %+v: got unit %d at step %d of %+v",
			unit, step, s.shape, imported.Index, imported.Step, imported.Shape)
	}
	s.aside[unit] = imported
	return nil
}

// Adopt makes exactly these units at exactly this version the ones to train: by taking what was imported, whatever was
// held of the unit, by rolling back, or by making version 0. It keeps this version and the one before of the other
// units that it held, to be given, until Completed. Newer ones, and what an import took the place of, are dropped: they
// belong to a history that others may have left. A version that cannot be had is an error, and leaves the state as it
// was.
func (s *State) Adopt(units []events.Range, step uint64) error {
	adopted := map[int]*model.Layer{}
	for unit := range events.Each(units) {
		version, err := s.find(unit, step)
		if err != nil {
			return err
		}
		adopted[unit] = version
	}
	s.keep(func(version *model.Layer) bool {
		chosen, at := adopted[version.Index], uint64(version.Step)
		imported := chosen != nil && chosen == s.aside[version.Index]
		return version != chosen && !imported && (at == step || at+1 == step)
	})
	for unit, version := range adopted {
		s.kept[unit] = append([]*model.Layer{version}, s.kept[unit]...)
	}
	s.trained, s.aside, s.fresh = adopted, map[int]*model.Layer{}, false
	return nil
}

// Forget drops everything: what this node holds may not be what the others hold.
func (s *State) Forget() {
	s.trained, s.kept, s.aside = map[int]*model.Layer{}, map[int][]*model.Layer{}, map[int]*model.Layer{}
	s.fresh = false
}

// find returns a unit at a version.
func (s *State) find(unit int, step uint64) (*model.Layer, error) {
	if version := s.held(unit, step); version != nil {
		return version, nil
	}
	if step == 0 {
		return model.NewLayer(s.shape, unit, s.seed)
	}
	return nil, fmt.Errorf("adoption of unit %d at step %d: expected it held or imported, got %v",
		unit, step, s.Holdings())
}

func (s *State) held(unit int, step uint64) *model.Layer {
	for _, version := range s.versions(unit) {
		if uint64(version.Step) == step {
			return version
		}
	}
	return nil
}

// keep drops the versions that are not wanted.
func (s *State) keep(wanted func(*model.Layer) bool) {
	for unit, versions := range s.kept {
		s.kept[unit] = slices.DeleteFunc(versions, func(version *model.Layer) bool { return !wanted(version) })
		if len(s.kept[unit]) == 0 {
			delete(s.kept, unit)
		}
	}
}

// Trained returns the version of a unit to train; nil where the node does not train it.
func (s *State) Trained(unit int) *model.Layer { return s.trained[unit] }

// Advance makes a unit's next version the one to train, and keeps the one before.
func (s *State) Advance(next *model.Layer) {
	s.trained[next.Index] = next
	s.kept[next.Index] = append([]*model.Layer{next}, s.kept[next.Index]...)
}

// Completed says that all units to train have reached a step. It drops all but this version of them and the one
// before, and older imports.
func (s *State) Completed(step uint64) {
	s.keep(func(version *model.Layer) bool {
		return s.trained[version.Index] != nil && uint64(version.Step)+1 >= step
	})
	maps.DeleteFunc(s.aside, func(_ int, imported *model.Layer) bool { return uint64(imported.Step)+1 < step })
}

// Digests returns the digests of the units to train, first unit first.
func (s *State) Digests() []events.UnitDigest {
	var digests []events.UnitDigest
	for _, unit := range slices.Sorted(maps.Keys(s.trained)) {
		digests = append(digests, events.UnitDigest{Unit: unit, Digest: model.Digest(s.trained[unit])})
	}
	return digests
}
