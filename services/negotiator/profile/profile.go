// Package profile says what layers cost, of what nodes measured: per layer the median of the last nodes that told. One node that lies or
// errs moves nothing if three or more tell of a layer. If two do, the lower time and the larger activations count.
package profile

import (
	"cmp"
	"slices"
)

// Kept is of how many nodes the last word on a layer is kept.
const Kept = 5

// Cost is what one micro-batch takes in a layer.
type Cost struct {
	ForwardSeconds  float64 `json:"forwardSeconds"`
	BackwardSeconds float64 `json:"backwardSeconds"`
	ActivationBytes int64   `json:"activationBytes,omitempty"` // zero: not known
}

// Seconds is both passes together.
func (c Cost) Seconds() float64 { return c.ForwardSeconds + c.BackwardSeconds }

// Sample is what a node measured of a layer.
type Sample struct {
	Node string `json:"node"`
	Gone bool   `json:"gone,omitempty"`
	Cost
}

// Layers are the samples of each layer, by its number, the newest last: one a node, and at most Kept. Plain data.
type Layers map[int][]Sample

// Take notes what a node measured of some layers, one after the other. O(layers).
func (l Layers) Take(node string, first int, costs []Cost) {
	for i, cost := range costs {
		others := slices.DeleteFunc(l[first+i], func(sample Sample) bool { return sample.Node == node || sample.Gone })
		others = append(others, Sample{Node: node, Cost: cost})
		l[first+i] = others[max(0, len(others)-Kept):]
	}
}

// Leave says that a node is gone, which nobody can ask again. Its word on a layer counts on while nobody who is here has one.
// O(layers).
func (l Layers) Leave(node string) {
	for layer, samples := range l {
		for i := range samples {
			samples[i].Gone = samples[i].Gone || samples[i].Node == node
		}
		if slices.ContainsFunc(samples, func(sample Sample) bool { return !sample.Gone }) {
			l[layer] = slices.DeleteFunc(samples, func(sample Sample) bool { return sample.Gone })
		}
	}
}

// Of returns a layer's cost: the lower median of the times, and the upper one of the activations that were measured, for a plan
// that does not fit ends trainers. False: nobody measured it.
func (l Layers) Of(layer int) (Cost, bool) {
	samples := l[layer]
	if len(samples) == 0 {
		return Cost{}, false
	}
	of := func(seconds func(Sample) float64) float64 { return Median(collect(samples, seconds)) }
	return Cost{
		ForwardSeconds:  of(func(s Sample) float64 { return s.ForwardSeconds }),
		BackwardSeconds: of(func(s Sample) float64 { return s.BackwardSeconds }),
		ActivationBytes: -Median(slices.DeleteFunc(collect(samples, func(s Sample) int64 { return -s.ActivationBytes }),
			func(bytes int64) bool { return bytes == 0 })),
	}, true
}

func collect[T any](samples []Sample, what func(Sample) T) []T {
	list := make([]T, len(samples))
	for i, sample := range samples {
		list[i] = what(sample)
	}
	return list
}

// Median returns the lower median of some numbers, and zero of none.
func Median[T cmp.Ordered](numbers []T) (median T) {
	if len(numbers) > 0 {
		median = slices.Sorted(slices.Values(numbers))[(len(numbers)-1)/2]
	}
	return median
}

// alike is by how much layers may differ, beside what is declared of them, and count as alike: measurements scatter, and a
// plan that follows them moves state for nothing.
const alike = 1.25

// A layer of which fewer than enough nodes tell has activations of a fourth to four times those declared, if any are.
const (
	enough   = 3
	believed = 4
)

// activations is what a layer keeps, as measured and as far as that is believed beside what is declared.
func (l Layers) activations(layer int, measured, declared int64) int64 {
	switch {
	case measured == 0:
		return declared
	case declared == 0 || len(l[layer]) >= enough:
		return measured
	}
	return min(max(measured, declared/believed), declared*believed)
}

// All returns what each of so many layers costs. The declared figures tell how layers compare, which are equal if none is declared:
// of the layers that take about as many times what is declared as the median one does, each takes as many times that as all of
// them together. One that differs by more takes what was measured of it, and of one that nobody measured it is not known by how
// much it differs. Without a sample it returns what is declared. O(layers log layers).
func (l Layers) All(declared []Cost) []Cost {
	all, measured := shape(declared), make([]Cost, len(declared))
	var ratios []float64
	for layer := range all {
		measured[layer], _ = l.Of(layer)
		if ratio := measured[layer].Seconds() / all[layer].Seconds(); ratio > 0 && all[layer].Seconds() > 0 {
			ratios = append(ratios, ratio)
		}
	}
	usual := Median(ratios)
	if usual == 0 {
		return declared
	}
	differs := func(layer int) bool {
		seconds, expected := measured[layer].Seconds(), usual*all[layer].Seconds()
		return seconds > 0 && (seconds > alike*expected || seconds < expected/alike)
	}
	var told, said Cost // of those that are alike
	for layer := range all {
		if seconds := measured[layer].Seconds(); seconds > 0 && !differs(layer) {
			told.ForwardSeconds, told.BackwardSeconds = told.ForwardSeconds+measured[layer].ForwardSeconds, told.BackwardSeconds+measured[layer].BackwardSeconds
			said.ForwardSeconds, said.BackwardSeconds = said.ForwardSeconds+all[layer].ForwardSeconds, said.BackwardSeconds+all[layer].BackwardSeconds
		}
	}
	for layer := range all {
		all[layer].ActivationBytes = l.activations(layer, measured[layer].ActivationBytes, all[layer].ActivationBytes)
		if differs(layer) {
			all[layer].ForwardSeconds, all[layer].BackwardSeconds = measured[layer].ForwardSeconds, measured[layer].BackwardSeconds
			continue
		}
		all[layer].ForwardSeconds *= share(told.ForwardSeconds, said.ForwardSeconds)
		all[layer].BackwardSeconds *= share(told.BackwardSeconds, said.BackwardSeconds)
	}
	return all
}

func share(part, whole float64) float64 {
	if whole == 0 {
		return 0
	}
	return part / whole
}

// shape is what is declared of layers, with a second for each pass of each where no seconds are.
func shape(declared []Cost) []Cost {
	all := slices.Clone(declared)
	if slices.ContainsFunc(declared, func(cost Cost) bool { return cost.Seconds() > 0 }) {
		return all
	}
	for layer := range all {
		all[layer].ForwardSeconds, all[layer].BackwardSeconds = 1, 1
	}
	return all
}
