package events

import (
	"fmt"
	"iter"
	"slices"
)

// The state is numbered in units. A unit is what is held, moved, dropped and digested as one. While the optimizer state
// stays whole, unit l is layer l with all of its state. In a model of L layers unit l is only the parameters of layer l
// if the optimizer state is cut into Z partitions (ZeRO). Every holder of the layer keeps those. Unit (1+z)*L + l is
// then partition z of the layer's optimizer state. A pipeline names the partitions that it keeps.

const (
	// MostPartitions bounds into how many the optimizer state may be cut.
	MostPartitions = 64
	// MostUnits bounds the layers of a model, and the layers and partitions of layers: work grows with them.
	MostUnits = 4096
)

// Units returns the number of units of the job's state.
func (j *Job) Units() int { return len(j.Layers) * (1 + j.OptimizerPartitions) }

// UnitBytes returns how long each unit of the job's state is. Partitions are as even as whole bytes allow.
func (j *Job) UnitBytes() []int64 {
	bytes := make([]int64, 0, j.Units())
	for _, layer := range j.Layers {
		if j.OptimizerPartitions == 0 {
			bytes = append(bytes, layer.StateBytes())
		} else {
			bytes = append(bytes, layer.ParameterBytes)
		}
	}
	count := int64(j.OptimizerPartitions)
	for partition := range count {
		for _, layer := range j.Layers {
			bytes = append(bytes, layer.OptimizerBytes*(partition+1)/count-layer.OptimizerBytes*partition/count)
		}
	}
	return bytes
}

// GradientBytes returns how much of each layer is all-reduced.
func (j *Job) GradientBytes() []int64 {
	bytes := make([]int64, len(j.Layers))
	for i, layer := range j.Layers {
		bytes[i] = layer.GradientBytes
	}
	return bytes
}

// partitions checks those of a job's optimizer state.
func (c *check) partitions(j *Job) {
	if j.OptimizerPartitions == 0 {
		return
	}
	c.rule("job", j.Units() <= MostUnits, "optimizerPartitions",
		fmt.Sprintf("at most %d layers and partitions of layers", MostUnits), j.Units())
	least := int64(j.OptimizerPartitions)
	for i, layer := range j.Layers {
		at := fmt.Sprintf("layers[%d].", i)
		c.rule("job", layer.ParameterBytes >= 1, at+"parameterBytes", "at least 1", layer.ParameterBytes)
		c.rule("job", layer.OptimizerBytes >= least, at+"optimizerBytes", fmt.Sprintf("at least %d", least), layer.OptimizerBytes)
	}
}

// Partitions returns into how many the optimizer state is cut; zero: it is whole.
func (p *Plan) Partitions() int {
	count := 0
	for _, pipeline := range p.Pipelines {
		for _, partition := range pipeline.Partitions {
			count = max(count, partition+1)
		}
	}
	return count
}

// UnitCount returns the number of units of the state.
func (p *Plan) UnitCount() int { return p.LayerCount() * (1 + p.Partitions()) }

// UnitsOf returns the units that a node holds under the plan; none without a place.
func (p *Plan) UnitsOf(node string) []Range {
	for i, pipeline := range p.Pipelines {
		for s, stage := range pipeline.Stages {
			if stage.Node == node {
				return p.UnitsAt(Place{Pipeline: i, Stage: s})
			}
		}
	}
	return nil
}

// UnitsOfAll returns the units of each node that has a place: to look for one takes as long as to list them all.
func (p *Plan) UnitsOfAll() map[string][]Range {
	units := make(map[string][]Range, len(p.Nodes))
	for i, pipeline := range p.Pipelines {
		for s, stage := range pipeline.Stages {
			units[stage.Node] = p.UnitsAt(Place{Pipeline: i, Stage: s})
		}
	}
	return units
}

// UnitsAt returns the units that the node at a place holds: its layers, then the partitions of their optimizer state.
func (p *Plan) UnitsAt(place Place) []Range {
	pipeline := p.Pipelines[place.Pipeline]
	layers, count := pipeline.Stages[place.Stage].Layers, p.LayerCount()
	units := []Range{layers}
	for _, partition := range pipeline.Partitions {
		first := (1 + partition) * count
		units = append(units, Range{First: first + layers.First, End: first + layers.End})
	}
	return units
}

// UnitName says what a unit of a model of so many layers is, as "layer 3" or "partition 0 of layer 3".
func UnitName(unit, layers int) string {
	if unit < layers {
		return fmt.Sprintf("layer %d", unit)
	}
	return fmt.Sprintf("partition %d of layer %d", unit/layers-1, unit%layers)
}

// Each yields the units of ranges, in their order.
func Each(ranges []Range) iter.Seq[int] {
	return func(yield func(int) bool) {
		for _, units := range ranges {
			for unit := units.First; unit < units.End; unit++ {
				if !yield(unit) {
					return
				}
			}
		}
	}
}

// validatePartitions checks that every partition of every layer's optimizer state lives somewhere.
func (p *Plan) validatePartitions(members map[string]bool) error {
	for i, pipeline := range p.Pipelines {
		next := 0
		for _, partition := range pipeline.Partitions {
			if partition < next || partition >= MostPartitions {
				return fmt.Errorf("[%d].partitions: expected numbers from 0 to %d, ascending, got %v", i, MostPartitions-1,
					pipeline.Partitions)
			}
			next = partition + 1
		}
	}
	if units := p.UnitCount(); units > MostUnits {
		return fmt.Errorf("expected at most %d layers and partitions of layers, got %d", MostUnits, units)
	}
	if p.Partitions() == 0 {
		return nil
	}
	held := make([]bool, p.UnitCount())
	for i, pipeline := range p.Pipelines {
		for s, stage := range pipeline.Stages {
			if !members[stage.Node] {
				continue
			}
			for unit := range Each(p.UnitsAt(Place{Pipeline: i, Stage: s})) {
				held[unit] = true
			}
		}
	}
	if unit := slices.Index(held, false); unit >= 0 {
		return fmt.Errorf("expected %s at an active node, got none", UnitName(unit, p.LayerCount()))
	}
	return nil
}

// HoldingsOf returns what is held of units 0 to count, where steps tells the versions of each, newest first. Units side
// by side that are held at the same steps are one holding. O(count) calls of steps.
func HoldingsOf(count int, steps func(unit int) []uint64) []Holding {
	var holdings []Holding
	for unit := range count {
		held, last := steps(unit), len(holdings)-1
		switch {
		case len(held) == 0:
		case last >= 0 && holdings[last].Units.End == unit && slices.Equal(holdings[last].Steps, held):
			holdings[last].Units.End++
		default:
			holdings = append(holdings, Holding{Units: Range{First: unit, End: unit + 1}, Steps: held})
		}
	}
	return holdings
}
