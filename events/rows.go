package events

import (
	"fmt"
	"iter"
	"slices"
)

// The state that moves is numbered in rows, and wherever the words say "layer" of something held, moved, dropped or digested,
// a row is meant. Row l is layer l with all of its state, as long as the optimizer state stays whole. Where it is cut into Z
// partitions (ZeRO), row l is the parameters of layer l alone, which all of its holders keep, and row (1+z)*L + l of a model of L
// layers is partition z of its optimizer state, which those pipelines keep that name it.

const (
	// MostPartitions bounds into how many the optimizer state may be cut.
	MostPartitions = 64
	// MostRows bounds the layers of a model, and the layers and partitions of layers: work grows with them.
	MostRows = 4096
)

// Rows returns the number of rows of the job's state.
func (j *Job) Rows() int { return len(j.Layers) * (1 + j.OptimizerPartitions) }

// RowBytes returns how long each row of the job's state is. Partitions are as even as whole bytes allow.
func (j *Job) RowBytes() []int64 {
	bytes := make([]int64, 0, j.Rows())
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

func (j *Job) validatePartitions() error {
	var c check
	c.that(j.OptimizerPartitions >= 0 && j.OptimizerPartitions <= MostPartitions, "optimizerPartitions", fmt.Sprintf("0 to %d", MostPartitions), j.OptimizerPartitions)
	if c.err != nil || j.OptimizerPartitions == 0 {
		return c.err
	}
	c.that(j.Rows() <= MostRows, "optimizerPartitions", fmt.Sprintf("at most %d layers and partitions of layers", MostRows), j.Rows())
	c.each(len(j.Layers), "layers", func(i int) error {
		var c check
		c.atLeast("parameterBytes", j.Layers[i].ParameterBytes, 1)
		c.atLeast("optimizerBytes", j.Layers[i].OptimizerBytes, int64(j.OptimizerPartitions))
		return c.err
	})
	return c.err
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

// RowCount returns the number of rows of the state.
func (p *Plan) RowCount() int { return p.LayerCount() * (1 + p.Partitions()) }

// Rows returns the rows that a node holds under the plan; none without a place.
func (p *Plan) Rows(node string) []Layers {
	for i, pipeline := range p.Pipelines {
		for s, stage := range pipeline.Stages {
			if stage.Node == node {
				return p.RowsAt(Place{Pipeline: i, Stage: s})
			}
		}
	}
	return nil
}

// RowsAt returns the rows that the node at a place holds: its layers, then the partitions of their optimizer state.
func (p *Plan) RowsAt(place Place) []Layers {
	pipeline := p.Pipelines[place.Pipeline]
	layers, count := pipeline.Stages[place.Stage].Layers, p.LayerCount()
	rows := []Layers{layers}
	for _, partition := range pipeline.Partitions {
		first := (1 + partition) * count
		rows = append(rows, Layers{First: first + layers.First, End: first + layers.End})
	}
	return rows
}

// RowName says what a row of a model of so many layers is, as "layer 3" or "partition 0 of layer 3".
func RowName(row, layers int) string {
	if row < layers {
		return fmt.Sprintf("layer %d", row)
	}
	return fmt.Sprintf("partition %d of layer %d", row/layers-1, row%layers)
}

// Each yields the rows of ranges, in their order.
func Each(ranges []Layers) iter.Seq[int] {
	return func(yield func(int) bool) {
		for _, rows := range ranges {
			for row := rows.First; row < rows.End; row++ {
				if !yield(row) {
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
				return fmt.Errorf("[%d].partitions: expected numbers from 0 to %d, ascending, got %v", i, MostPartitions-1, pipeline.Partitions)
			}
			next = partition + 1
		}
	}
	if rows := p.RowCount(); rows > MostRows {
		return fmt.Errorf("expected at most %d layers and partitions of layers, got %d", MostRows, rows)
	}
	if p.Partitions() == 0 {
		return nil
	}
	held := make([]bool, p.RowCount())
	for i, pipeline := range p.Pipelines {
		for s, stage := range pipeline.Stages {
			if !members[stage.Node] {
				continue
			}
			for row := range Each(p.RowsAt(Place{Pipeline: i, Stage: s})) {
				held[row] = true
			}
		}
	}
	if row := slices.Index(held, false); row >= 0 {
		return fmt.Errorf("expected %s at an active node, got none", RowName(row, p.LayerCount()))
	}
	return nil
}
