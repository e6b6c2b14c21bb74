// Package state keeps the layers a node trains: the newest version of each, and the one before for a roll-back.
//
// A step updates layer by layer, so a node that is interrupted may hold some layers one step further than others.
// The holdings say so, and whoever plans the recovery chooses the version that all layers can have.
package state

import (
	"fmt"
	"maps"
	"slices"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/trainer/model"
)

// State is the layers of one node. Versions are completed steps. It serves one goroutine.
type State struct {
	shape    model.Shape
	seed     uint64
	fresh    bool                   // nothing was adopted yet
	versions map[int][]*model.Layer // by layer, newest first, at most two
	aside    map[int]*model.Layer   // imported, not adopted
}

// New returns the state of a node that was not given any layers: it can make every layer at version 0.
func New(shape model.Shape, seed uint64) *State {
	return &State{shape: shape, seed: seed, fresh: true, versions: map[int][]*model.Layer{}, aside: map[int]*model.Layer{}}
}

// Holdings returns the layers and versions that Export can give, as ranges of layers with equal versions.
func (s *State) Holdings() []events.Holding {
	if s.fresh {
		return []events.Holding{{Layers: events.Layers{First: 0, End: s.shape.Layers()}, Steps: []uint64{0}}}
	}
	var holdings []events.Holding
	for _, layer := range slices.Sorted(maps.Keys(s.versions)) {
		var steps []uint64
		for _, version := range s.versions[layer] {
			steps = append(steps, uint64(version.Step))
		}
		if last := len(holdings) - 1; last >= 0 && holdings[last].Layers.End == layer && slices.Equal(holdings[last].Steps, steps) {
			holdings[last].Layers.End++
			continue
		}
		holdings = append(holdings, events.Holding{Layers: events.Layers{First: layer, End: layer + 1}, Steps: steps})
	}
	return holdings
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

// Adopt makes exactly these layers at exactly this version the state: by rolling back, by taking what was imported,
// or by making version 0. It drops all else. A version that cannot be had is an error, and leaves the state as it was.
func (s *State) Adopt(layers events.Layers, step uint64) error {
	adopted := make(map[int][]*model.Layer, layers.Count())
	for layer := layers.First; layer < layers.End; layer++ {
		version := s.held(layer, step)
		if imported := s.aside[layer]; version == nil && imported != nil && uint64(imported.Step) == step {
			version = imported
		}
		if version == nil && step == 0 {
			made, err := model.NewLayer(s.shape, layer, s.seed)
			if err != nil {
				return err
			}
			version = made
		}
		if version == nil {
			return fmt.Errorf("adoption of layer %d at step %d: expected it held or imported, got %v", layer, step, s.Holdings())
		}
		adopted[layer] = []*model.Layer{version}
	}
	s.versions, s.aside, s.fresh = adopted, map[int]*model.Layer{}, false
	return nil
}

func (s *State) held(layer int, step uint64) *model.Layer {
	for _, version := range s.versions[layer] {
		if uint64(version.Step) == step {
			return version
		}
	}
	return nil
}

// Newest returns the newest version of a layer; nil where it is not held.
func (s *State) Newest(layer int) *model.Layer {
	if versions := s.versions[layer]; len(versions) > 0 {
		return versions[0]
	}
	return nil
}

// Advance makes a layer's next version its newest, and keeps the one before.
func (s *State) Advance(next *model.Layer) {
	s.versions[next.Index] = []*model.Layer{next, s.Newest(next.Index)}
}

// Digests returns the digests of the newest versions, first layer first.
func (s *State) Digests() []events.LayerDigest {
	var digests []events.LayerDigest
	for _, layer := range slices.Sorted(maps.Keys(s.versions)) {
		digests = append(digests, events.LayerDigest{Layer: layer, Digest: model.Digest(s.Newest(layer))})
	}
	return digests
}
