package restore

import (
	"slices"
	"strconv"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/planner/place"
)

// A pair of nodes is unlike the others when its link is so many times slower or faster, as the planner tells it, and a pair
// without a direct link is taken to be so many times slower.
const (
	unusualFactor = 2
	dearFactor    = 10
)

// classes groups the nodes that may trade places: a plan document does not keep the planner's classes. All are one class
// unless the file gives them another memory or speed, or links that carry a micro-batch much slower or faster than usual.
func (g *ground) classes(nodes []events.Member, unreachable []events.Pair) [][]string {
	var kinds []kind
	var kindOf []int
	for _, node := range nodes {
		at := slices.Index(kinds, g.kind[node.Node])
		if at < 0 {
			at = len(kinds)
			kinds = append(kinds, g.kind[node.Node])
		}
		kindOf = append(kindOf, at)
	}
	var classes [][]string
	for _, class := range place.Classes(len(nodes), g.unusual(nodes, unreachable), kindOf) {
		var names []string
		for _, node := range class {
			names = append(names, nodes[node].Node)
		}
		classes = append(classes, names)
	}
	return classes
}

// unusual returns the pairs of nodes whose links are unlike the median link, both directions averaged.
func (g *ground) unusual(nodes []events.Member, unreachable []events.Pair) []place.Pair {
	seconds, usual := g.messageSeconds()
	var pairs []place.Pair
	for b := range nodes {
		for a := range b {
			there, back := events.Pair{A: nodes[a].Node, B: nodes[b].Node}, events.Pair{A: nodes[b].Node, B: nodes[a].Node}
			cost := (seconds(there) + seconds(back)) / 2
			if slices.Contains(unreachable, events.PairOf(there.A, there.B)) {
				cost = dearFactor * usual
			}
			if cost > unusualFactor*usual || cost*unusualFactor < usual {
				pairs = append(pairs, place.Pair{A: a, B: b, Cost: twoDigits(cost)})
			}
		}
	}
	return pairs
}

// messageSeconds says how long the largest output of a layer takes on a link, the median where nobody measured it.
func (g *ground) messageSeconds() (seconds func(events.Pair) float64, usual float64) {
	output := int64(0)
	for _, layer := range g.layers {
		output = max(output, layer.OutputBytes)
	}
	took := func(link events.Measurement) float64 {
		return link.RoundTripSeconds/2 + float64(output)/link.BandwidthBytesPerSecond
	}
	var all []float64
	for _, link := range g.measured {
		all = append(all, took(link))
	}
	usual = took(events.Measurement{RoundTripSeconds: assumedRoundTripSeconds, BandwidthBytesPerSecond: assumedBytesPerSecond})
	if slices.Sort(all); len(all) > 0 {
		usual = all[len(all)/2]
	}
	return func(link events.Pair) float64 {
		if measured, known := g.measured[link]; known {
			return took(measured)
		}
		return usual
	}, usual
}

// twoDigits leaves out the noise of a measurement.
func twoDigits(value float64) float64 {
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(value, 'e', 1, 64), 64) // reads what was just written
	return rounded
}
