package machine

import (
	"fmt"
	"slices"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/restorer/layers"
	"github.com/reknit/reknit/services/restorer/rounds"
)

// mostSeconds bounds an all-reduce, so that sums of nanoseconds cannot overflow: eleven days.
const mostSeconds = 1e6

// schedule orders the all-reduces of the plan in rounds whose longest ones take as little together as can be found.
func (r *restoration) schedule() error {
	var holdings [][]layers.Range
	var names []string
	holds := r.plan.HoldsOfAll()
	for _, node := range r.plan.Nodes {
		if held, placed := holds[node.Node]; placed {
			holdings = append(holdings, []layers.Range{layers.Range(held)})
			names = append(names, node.Node)
		}
	}
	schedule, err := rounds.Plan(r.plan.LayerCount(), holdings, r.reduction(names))
	if err != nil {
		return fmt.Errorf("all-reduce rounds: %w", err)
	}
	r.plan.Sync.Rounds = nil
	for _, round := range schedule.Rounds {
		var groups []events.Group
		for _, group := range round {
			var nodes []string
			for _, node := range group.Nodes {
				nodes = append(nodes, names[node])
			}
			groups = append(groups, events.Group{Layers: events.Range(group.Layers), Nodes: nodes})
		}
		r.plan.Sync.Rounds = append(r.plan.Sync.Rounds, events.Round{Groups: groups})
	}
	return nil
}

// reduction returns how long an all-reduce among some of names lasts. Each holder sends every other a part of its
// gradients and gets the sum back, as the holder with the slowest links can (DT-FM, equation 2). Where the request does
// not tell how large gradients are, they are taken to be as large as the state: only how the groups compare matters
// then.
func (r *restoration) reduction(names []string) func(rounds.Group) int64 {
	bandwidths, roundTrips, gradients := r.bandwidths(names), r.roundTrips(names), r.Gradients
	if len(gradients) == 0 {
		gradients = r.Units
	}
	var nodes []int // whose links were looked at last: all layers often have the same holders
	perByte, begin := 0.0, 0.0
	return func(group rounds.Group) int64 {
		if len(group.Nodes) < 2 {
			return 0
		}
		if !slices.Equal(nodes, group.Nodes) {
			nodes = slices.Clone(group.Nodes)
			perByte, begin = mostOfByte(nodes, bandwidths), 0
			for _, node := range nodes {
				begin = max(begin, roundTrips[node])
			}
		}
		bytes := 0.0
		for _, gradient := range gradients[group.Layers.First:group.Layers.End] {
			bytes += float64(gradient)
		}
		seconds := 2*perByte*bytes/float64(len(group.Nodes)) + begin
		return int64(1e9 * min(seconds, mostSeconds))
	}
}

// mostOfByte returns how many seconds a byte to each of the others, or from each of them, takes the slowest of nodes. O(n^2).
func mostOfByte(nodes []int, bandwidths [][]float64) (perByte float64) {
	receives := make([]float64, len(bandwidths))
	for _, node := range nodes {
		sends := 0.0
		for _, other := range nodes {
			if other != node {
				seconds := 1 / bandwidths[node][other]
				sends += seconds
				receives[other] += seconds
			}
		}
		perByte = max(perByte, sends)
	}
	return max(perByte, slices.Max(receives))
}
