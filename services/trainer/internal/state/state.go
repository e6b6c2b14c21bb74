// Package state keeps the layers a node trains: the newest version of each, and the one before for a roll-back. Where the
// optimizer state is cut into partitions, each of its rows (see package model) is kept as a layer of its own.
//
// A step updates layer by layer, so a node that is interrupted may hold some layers one step further than others.
// The holdings say so, and whoever plans the recovery chooses the version that all layers can have. Layers that a plan
// takes away are kept until its first step is complete: should their new holder die before, they are still here.
package state

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/trainer/model"
)

// State is the layers of one node. Versions are completed steps. It serves one goroutine.
type State struct {
	shape   model.Shape
	seed    uint64
	fresh   bool                   // nothing was adopted yet
	trained map[int]*model.Layer   // by layer: the version to train
	kept    map[int][]*model.Layer // by layer: the versions to give, newest first
	aside   map[int]*model.Layer   // by layer: the last import that was not adopted
}

// New returns the state of a node that was not given any layers: it can make every layer at version 0.
func New(shape model.Shape, seed uint64) *State {
	return &State{
		shape: shape, seed: seed, fresh: true,
		trained: map[int]*model.Layer{}, kept: map[int][]*model.Layer{}, aside: map[int]*model.Layer{},
	}
}

// Holdings returns the layers and versions that Export can give, newest first, as ranges of layers with equal versions. What was
// imported and not adopted is among them: should the attempt that asked for it fail, the next one need not fetch it again.
func (s *State) Holdings() []events.Holding {
	var holdings []events.Holding
	for layer := range s.shape.Rows() {
		var steps []uint64
		for _, version := range s.versions(layer) {
			steps = append(steps, uint64(version.Step))
		}
		if s.fresh && !slices.Contains(steps, 0) {
			steps = append(steps, 0)
		}
		if len(steps) == 0 {
			continue
		}
		if last := len(holdings) - 1; last >= 0 && holdings[last].Units.End == layer && slices.Equal(holdings[last].Steps, steps) {
			holdings[last].Units.End++
			continue
		}
		holdings = append(holdings, events.Holding{Units: events.Range{First: layer, End: layer + 1}, Steps: steps})
	}
	return holdings
}

// versions returns what is held of a layer, newest first. An import was verified: it stands for what was held at its step.
func (s *State) versions(layer int) []*model.Layer {
	imported := s.aside[layer]
	if imported == nil {
		return s.kept[layer]
	}
	versions := []*model.Layer{imported}
	for _, version := range s.kept[layer] {
		if version.Step != imported.Step {
			versions = append(versions, version)
		}
	}
	slices.SortFunc(versions, func(a, b *model.Layer) int { return cmp.Compare(b.Step, a.Step) })
	return versions
}

// Export returns the canonical bytes of a layer at a version that Holdings names.
func (s *State) Export(layer int, step uint64) ([]byte, error) {
	if version := s.held(layer, step); version != nil {
		return model.MarshalLayer(version), nil
	}
	if s.fresh && step == 0 {
		made, err := model.NewLayer(s.shape, layer, s.seed)
		if err != nil {
			return nil, err
		}
		return model.MarshalLayer(made), nil
	}
	return nil, fmt.Errorf("export of layer %d at step %d: expected one of %v", layer, step, s.Holdings())
}

// Import keeps a layer aside until Adopt, in place of an older import of it. Bytes that are not that layer at that
// version, of a model of this shape, are an error.
func (s *State) Import(layer int, step uint64, data []byte) error {
	imported, err := model.UnmarshalLayer(data)
	if err != nil {
		return err
	}
	if imported.Index != layer || uint64(imported.Step) != step || imported.Shape != s.shape {
		return fmt.Errorf("import of layer %d at step %d of %+v: got layer %d at step %d of %+v",
			layer, step, s.shape, imported.Index, imported.Step, imported.Shape)
	}
	s.aside[layer] = imported
	return nil
}

// Adopt makes exactly these layers at exactly this version the ones to train: by taking what was imported, whatever was held of
// that layer, by rolling back, or by making version 0. Of what was held of other layers it keeps this version and the one before,
// to be given, until Completed. Newer ones, and what an import took the place of, are dropped: they belong to a history that
// others may have left. A version that cannot be had is an error, and leaves the state as it was.
func (s *State) Adopt(layers []events.Range, step uint64) error {
	adopted := map[int]*model.Layer{}
	for layer := range events.Each(layers) {
		version, err := s.find(layer, step)
		if err != nil {
			return err
		}
		adopted[layer] = version
	}
	s.keep(func(layer *model.Layer) bool {
		version, at := adopted[layer.Index], uint64(layer.Step)
		imported := version != nil && version == s.aside[layer.Index]
		return version != layer && !imported && (at == step || at+1 == step)
	})
	for layer, version := range adopted {
		s.kept[layer] = append([]*model.Layer{version}, s.kept[layer]...)
	}
	s.trained, s.aside, s.fresh = adopted, map[int]*model.Layer{}, false
	return nil
}

// Forget drops everything: what this node holds may not be what the others hold.
func (s *State) Forget() {
	s.trained, s.kept, s.aside = map[int]*model.Layer{}, map[int][]*model.Layer{}, map[int]*model.Layer{}
	s.fresh = false
}

// find returns a layer at a version.
func (s *State) find(layer int, step uint64) (*model.Layer, error) {
	if version := s.held(layer, step); version != nil {
		return version, nil
	}
	if step == 0 {
		return model.NewLayer(s.shape, layer, s.seed)
	}
	return nil, fmt.Errorf("adoption of layer %d at step %d: expected it held or imported, got %v", layer, step, s.Holdings())
}

func (s *State) held(layer int, step uint64) *model.Layer {
	for _, version := range s.versions(layer) {
		if uint64(version.Step) == step {
			return version
		}
	}
	return nil
}

// keep drops the versions that are not wanted.
func (s *State) keep(wanted func(*model.Layer) bool) {
	for layer, versions := range s.kept {
		s.kept[layer] = slices.DeleteFunc(versions, func(version *model.Layer) bool { return !wanted(version) })
		if len(s.kept[layer]) == 0 {
			delete(s.kept, layer)
		}
	}
}

// Trained returns the version of a layer to train; nil where the node does not train it.
func (s *State) Trained(layer int) *model.Layer { return s.trained[layer] }

// Advance makes a layer's next version the one to train, and keeps the one before.
func (s *State) Advance(next *model.Layer) {
	s.trained[next.Index] = next
	s.kept[next.Index] = append([]*model.Layer{next}, s.kept[next.Index]...)
}

// Completed says that all layers to train have reached a step. It drops all but this version of them and the one
// before, and older imports.
func (s *State) Completed(step uint64) {
	s.keep(func(layer *model.Layer) bool {
		return s.trained[layer.Index] != nil && uint64(layer.Step)+1 >= step
	})
	maps.DeleteFunc(s.aside, func(_ int, imported *model.Layer) bool { return uint64(imported.Step)+1 < step })
}

// Digests returns the digests of the layers to train, first layer first.
func (s *State) Digests() []events.UnitDigest {
	var digests []events.UnitDigest
	for _, layer := range slices.Sorted(maps.Keys(s.trained)) {
		digests = append(digests, events.UnitDigest{Unit: layer, Digest: model.Digest(s.trained[layer])})
	}
	return digests
}
