package main

import (
	"fmt"

	"github.com/reknit/reknit/events"
)

// The job: 32 layers of 192 MiB of state, of which a node holds about eight.
const (
	layers         = 32
	layersPerNode  = 8
	parameterBytes = 64 << 20
	optimizerBytes = 2 * parameterBytes
	shardPart      = 8 << 20 // as an agent cuts what it gives
)

// job returns the job of a cluster of so many nodes. Few nodes hold twice as many layers each.
func job(nodes int) events.Job {
	layer := events.LayerProfile{
		ParameterBytes: parameterBytes, OptimizerBytes: optimizerBytes, GradientBytes: parameterBytes,
		ActivationBytes: 16 << 20, OutputBytes: 4 << 20, ForwardSeconds: 0.01, BackwardSeconds: 0.02,
	}
	job := events.Job{
		Digest: events.Digest([]byte("bench-negotiator")), GlobalBatch: max(64, 4*nodes), MicroBatch: 1,
		Pipelines: events.Bounds{Min: 1}, Stages: events.Bounds{Min: 1},
	}
	for range layers {
		job.Layers = append(job.Layers, layer)
	}
	return job
}

// memoryBytes is what a node of such a cluster may use: room for a few layers more than its share.
func memoryBytes(nodes int) int64 {
	held := layersPerNode
	if nodes < 2*layers/layersPerNode {
		held *= 2
	}
	const more = 4 // its place grows when others fail
	return int64(held+more) * (2*parameterBytes + optimizerBytes + 16<<20)
}

// digestOf names the make-believe content of a unit at a step: all its holders have the same.
func digestOf(unit int, step uint64) string {
	return events.Digest(fmt.Appendf(nil, "unit %d at step %d", unit, step))
}
