package dev

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/reknit/reknit/events"
)

// drawPlaces draws a plan of some pipelines over as many layers as have bytes, and who holds what.
func drawPlaces(random *rand.Rand) (plan events.Plan, holders []events.Holder, units []int64) {
	for range 4 + random.IntN(4) {
		units = append(units, 1+random.Int64N(9))
	}
	for range 1 + random.IntN(2) {
		pipeline := events.Pipeline{}
		for first := 0; first < len(units); {
			end := min(first+1+random.IntN(4), len(units))
			name := fmt.Sprint("n", len(holders))
			pipeline.Stages = append(pipeline.Stages, events.Stage{Node: name, Layers: events.Range{First: first, End: end}})
			from := random.IntN(len(units))
			holders = append(holders, events.Holder{Node: name, Units: []events.Range{{First: from, End: from + random.IntN(len(units)-from+1)}}})
			first = end
		}
		plan.Pipelines = append(plan.Pipelines, pipeline)
	}
	return plan, holders, units
}

// leastOfAll tries every order of the nodes that are left for the places from one on.
func leastOfAll(costs [][]int64, place int, left []int) int64 {
	least := int64(1 << 40)
	if len(left) == 0 {
		return 0
	}
	for i, node := range left {
		others := append(append([]int{}, left[:i]...), left[i+1:]...)
		least = min(least, costs[node][place]+leastOfAll(costs, place+1, others))
	}
	return least
}

func TestTheLeastIsThatOfAllOrdersOfNodes(t *testing.T) {
	for seed := range uint64(100) {
		plan, holders, units := drawPlaces(rand.New(rand.NewPCG(seed, 1)))
		places := placesOf(plan)
		if len(places) > 7 {
			continue
		}
		var nodes []int
		for node := range places {
			nodes = append(nodes, node)
		}
		least, known := leastBytes(plan, holders, units)
		if want := leastOfAll(fetches(places, holders, units), 0, nodes); !known || least != want {
			t.Errorf("seed %d: %d bytes, known %v, expected %d", seed, least, known, want)
		}
	}
}
