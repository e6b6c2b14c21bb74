package dev

import (
	"math"
	"math/bits"

	"github.com/reknit/reknit/events"
)

// mostPlaces bounds how many places the least is looked for: memory doubles with each.
const mostPlaces = 16

// leastBytes is the least that a plan of this shape can have moved, whoever of its nodes takes which place: a node keeps what it has of a
// place, and fetches the rest. It is the cheapest of all assignments, found place by place over all sets of nodes. False: there are too
// many places, or the units' bytes are not known. It is told and not judged: places follow speeds and links as they were measured, and six
// trainers on two busy cores differ. O(places * 2^places).
func leastBytes(plan events.Plan, holders []events.Holder, units []int64) (least int64, known bool) {
	places := placesOf(plan)
	if len(places) == 0 || len(places) > mostPlaces || len(units) != plan.LayerCount() {
		return 0, false
	}
	costs := fetches(places, holders, units)
	cheapest := make([]int64, 1<<len(places)) // of the first places, as many as a set of nodes has, with these nodes
	for nodes := 1; nodes < len(cheapest); nodes++ {
		cheapest[nodes] = math.MaxInt64
	}
	for nodes := range cheapest {
		for node := range places {
			with := nodes | 1<<node
			if with != nodes {
				cheapest[with] = min(cheapest[with], cheapest[nodes]+costs[node][count(nodes)])
			}
		}
	}
	return cheapest[len(cheapest)-1], true
}

func placesOf(plan events.Plan) (places []events.Stage) {
	for _, pipeline := range plan.Pipelines {
		places = append(places, pipeline.Stages...)
	}
	return places
}

// fetches are the bytes that the node of each place lacks of each place.
func fetches(places []events.Stage, holders []events.Holder, units []int64) [][]int64 {
	holds := map[string][]events.Range{}
	for _, holder := range holders {
		holds[holder.Node] = append(holds[holder.Node], holder.Units...)
	}
	costs := make([][]int64, len(places))
	for i, place := range places {
		has := make([]bool, len(units))
		for layer := range events.Each(holds[place.Node]) {
			has[layer] = true
		}
		for _, other := range places {
			lacks := int64(0)
			for layer := other.Layers.First; layer < other.Layers.End; layer++ {
				if !has[layer] {
					lacks += units[layer]
				}
			}
			costs[i] = append(costs[i], lacks)
		}
	}
	return costs
}

// count is how many nodes a set has.
func count(nodes int) int { return bits.OnesCount(uint(nodes)) }
