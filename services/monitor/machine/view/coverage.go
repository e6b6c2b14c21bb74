package view

import (
	"slices"

	"github.com/reknit/reknit/events"
)

// Coverage says how many living nodes hold each layer, and who is the only one.
type Coverage struct {
	// Holders counts, of each layer, those of its scarcest unit: the parameters, or a partition of the optimizer state.
	Holders []int  `json:"holders"`
	Alone   []Sole `json:"alone"` // by node
}

// Sole is a node that is the last to hold something: with its death that is lost, unless a snapshot has it.
type Sole struct {
	Node   string       `json:"node"`
	Layers events.Range `json:"layers"` // first to last
	Count  int          `json:"count"`  // of them that only this node has
}

// CoverageOf counts who of the living holds what under a plan. O(units x pipelines).
func CoverageOf(plan *events.Plan, living map[string]bool) Coverage {
	layers := plan.LayerCount()
	holders, last := make([]int, plan.UnitCount()), make([]string, plan.UnitCount())
	for p, pipeline := range plan.Pipelines {
		for s, stage := range pipeline.Stages {
			if !living[stage.Node] {
				continue
			}
			for unit := range events.Each(plan.UnitsAt(events.Place{Pipeline: p, Stage: s})) {
				holders[unit]++
				last[unit] = stage.Node
			}
		}
	}
	coverage := Coverage{Holders: slices.Clone(holders[:layers]), Alone: []Sole{}}
	alone := map[string]map[int]bool{} // by node: layers
	for unit, count := range holders {
		layer := unit % layers
		coverage.Holders[layer] = min(coverage.Holders[layer], count)
		if count == 1 {
			if alone[last[unit]] == nil {
				alone[last[unit]] = map[int]bool{}
			}
			alone[last[unit]][layer] = true
		}
	}
	for _, pipeline := range plan.Pipelines {
		for _, stage := range pipeline.Stages {
			if found := alone[stage.Node]; len(found) > 0 {
				coverage.Alone = append(coverage.Alone, soleOf(stage.Node, found))
			}
		}
	}
	return coverage
}

func soleOf(node string, layers map[int]bool) Sole {
	sole := Sole{Node: node, Count: len(layers), Layers: events.Range{First: -1}}
	for layer := range layers {
		if sole.Layers.First < 0 || layer < sole.Layers.First {
			sole.Layers.First = layer
		}
		sole.Layers.End = max(sole.Layers.End, layer+1)
	}
	return sole
}
