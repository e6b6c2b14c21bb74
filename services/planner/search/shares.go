package search

import (
	"fmt"

	"github.com/reknit/reknit/services/planner/estimate"
)

// Share is what the layers are in plans of at most so many pipelines. Each pipeline keeps more of the optimizer state
// the fewer pipelines there are, if that state is partitioned (ZeRO stage 1, Rajbhandari et al. 2020).
type Share struct {
	Pipelines int
	Layers    []estimate.Layer
}

// at is the searcher for plans of so many pipelines, made when it is asked for first.
func (s *searcher) at(pipelines int) *searcher {
	for i, share := range s.Shares {
		if pipelines > share.Pipelines {
			continue
		}
		if s.shares[i] == nil {
			few := s.Problem
			few.Layers, few.Shares = share.Layers, nil
			s.shares[i] = newCapped(few, noLimit, s.paths, s.inVain)
		}
		return s.shares[i]
	}
	return s
}

func (p Problem) checkLayers() error {
	before := 0
	for i, share := range p.Shares {
		if share.Pipelines <= before {
			return fmt.Errorf("shares[%d].pipelines is %d, expected more than %d", i, share.Pipelines, before)
		}
		if len(share.Layers) != len(p.Layers) {
			return fmt.Errorf("shares[%d].layers is %d of them, expected %d", i, len(share.Layers), len(p.Layers))
		}
		if err := usableLayers(share.Layers); err != nil {
			return fmt.Errorf("shares[%d].%w", i, err)
		}
		before = share.Pipelines
	}
	return usableLayers(p.Layers)
}

func usableLayers(layers []estimate.Layer) error {
	for i, layer := range layers {
		if !usable(layer.ForwardSeconds) || !usable(layer.BackwardSeconds) || layer.StaticBytes < 0 ||
			layer.ActivationBytes < 0 {
			return fmt.Errorf("layers[%d] is %+v, expected finite numbers of at least 0", i, layer)
		}
	}
	return nil
}
