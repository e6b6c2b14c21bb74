package protocol

import "slices"

// Data tells where training stands in its data: the stretches of steps that count, oldest first. A step that was undone
// counts no more, and its samples are trained again. While the global batch stays there is one stretch.
type Data []Stretch

// Stretch is steps in a row that train as many samples each.
type Stretch struct {
	FirstStep   uint64 `json:"firstStep"`
	Samples     uint64 `json:"samples"`     // position in the data at its first step
	GlobalBatch int    `json:"globalBatch"` // samples of each step
}

// MostStretches bounds a memory of batches that follow the nodes: a plan goes back to the last steps or to the newest
// snapshots, not over a thousand changes.
const MostStretches = 1024

// Position returns how many samples training has consumed after so many steps that count. Before the oldest stretch
// that is remembered, steps are taken to be like its own, as far as there were samples before it: the batch may have been
// smaller then. They are taken to be like those to come where nothing is remembered.
func (d Data) Position(step uint64, globalBatch int) uint64 {
	for _, stretch := range slices.Backward(d) {
		if stretch.FirstStep <= step {
			return stretch.Samples + (step-stretch.FirstStep)*uint64(stretch.GlobalBatch)
		}
	}
	if len(d) == 0 {
		return step * uint64(globalBatch)
	}
	before := (d[0].FirstStep - step) * uint64(d[0].GlobalBatch)
	return d[0].Samples - min(before, d[0].Samples)
}

// From returns the stretches where a plan goes on at a position, and trains so many samples a step from there.
func (d Data) From(step, samples uint64, globalBatch int) Data {
	next := Stretch{FirstStep: step, Samples: samples, GlobalBatch: globalBatch}
	left := slices.DeleteFunc(slices.Clone(d), func(s Stretch) bool { return s.FirstStep >= step })
	last := len(left) - 1
	if last >= 0 && left[last].GlobalBatch == globalBatch && left.Position(step, globalBatch) == samples {
		return left
	}
	left = append(left, next)
	return left[max(0, len(left)-MostStretches):]
}
