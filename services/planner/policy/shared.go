package policy

import (
	"slices"

	"github.com/reknit/reknit/services/planner/estimate"
	"github.com/reknit/reknit/services/planner/search"
)

// clocks tell the time of each pipeline's part of a step by the number of its micro-batches, without its all-reduces.
type clocks struct {
	perMicroBatch []float64           // of sharded jobs
	timed         []estimate.Pipeline // of others
	scratch       []float64
}

func (s Situation) clocks(w wires, pipelines []Pipeline) clocks {
	var c clocks
	if s.Kind == Sharded {
		for _, pipeline := range pipelines {
			pipeline.MicroBatches = 1
			c.perMicroBatch = append(c.perMicroBatch, s.groupSeconds(w, pipeline))
		}
		return c
	}
	c.timed = make([]estimate.Pipeline, len(pipelines))
	longest := 0
	for p, pipeline := range pipelines {
		c.timed[p], longest = s.pipeline(w, pipeline), max(longest, len(pipeline.Stages))
	}
	c.scratch = make([]float64, 4*longest)
	return c
}

func (c clocks) seconds(p, microBatches int) float64 {
	if c.timed == nil {
		return float64(microBatches) * c.perMicroBatch[p]
	}
	timed := c.timed[p]
	timed.MicroBatches = microBatches
	return timed.Makespan(c.scratch)
}

// slowest is the time of the slowest pipeline.
func (c clocks) slowest(pipelines []Pipeline) float64 {
	slowest := 0.0
	for p, pipeline := range pipelines {
		slowest = max(slowest, c.seconds(p, pipeline.MicroBatches))
	}
	return slowest
}

// shared is pipelines among which the micro-batches are dealt so that the slowest is as fast as possible.
func (c clocks) shared(pipelines []Pipeline, microBatches int) []Pipeline {
	shares := search.OptimalBatches(microBatches, len(pipelines), c.seconds)
	pipelines = slices.Clone(pipelines)
	for p := range pipelines {
		pipelines[p].MicroBatches = shares[p]
	}
	return pipelines
}
