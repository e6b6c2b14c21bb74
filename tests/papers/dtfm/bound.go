package dtfm

import (
	"cmp"
	"math"
	"slices"
)

// floor is a lower bound on the cost of a step of any layout, from each device's nearest links and from the components
// of the network. O(devices^2 log devices).
func (g Grid) floor() float64 { return g.leastLoad() + g.leastHops() }

// leastLoad: every device exchanges with as many others as there are pipelines beside its own, at best the nearest.
func (g Grid) leastLoad() float64 {
	least := 0.0
	for device := range g.devices() {
		var loads []float64
		for other := range g.devices() {
			if other != device {
				loads = append(loads, g.loadSeconds(device, other))
			}
		}
		slices.Sort(loads)
		own := 0.0
		for _, seconds := range loads[:g.Pipelines-1] {
			own += seconds
		}
		least = max(least, own)
	}
	return least
}

// leastHops: with links of at most some seconds, c components of the network leave at least c pieces of pipelines, so c
// - pipelines links between stages are slower, no more than one a pipeline at one boundary. Summed up over all values,
// that bounds the sum of the slowest ones (Kruskal's spanning tree has the components).
func (g Grid) leastHops() float64 {
	type edge struct {
		a, b    int
		seconds float64
	}
	var all []edge
	for a := range g.devices() {
		for b := range a {
			all = append(all, edge{a, b, g.hopSeconds(a, b)})
		}
	}
	slices.SortFunc(all, func(a, b edge) int { return cmp.Compare(a.seconds, b.seconds) })
	component, components := make([]int, g.devices()), g.devices()
	for device := range component {
		component[device] = device
	}
	least, before := 0.0, 0.0
	for _, e := range all {
		from, to := component[e.a], component[e.b]
		if from == to {
			continue
		}
		least += (e.seconds - before) * math.Ceil(max(0, float64(components-g.Pipelines))/float64(g.Pipelines))
		before = e.seconds
		components--
		for device, c := range component {
			if c == from {
				component[device] = to
			}
		}
	}
	return least
}
