package machine

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/restorer/layers"
	"github.com/reknit/reknit/services/restorer/rounds"
)

// mostSeconds bounds an all-reduce, so that sums of nanoseconds cannot overflow: eleven days.
const mostSeconds = 1e6

// schedule orders the all-reduces of the plan in rounds whose longest ones take as little together as can be found. The nodes of
// each stand in the order that the proposal has for a group of them, and else by name.
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
	rings := newRings(r.plan.Sync, names)
	schedule, err := rounds.Plan(r.plan.LayerCount(), holdings, r.reduction(names, rings))
	if err != nil {
		return fmt.Errorf("all-reduce rounds: %w", err)
	}
	r.plan.Sync.Rounds = nil
	for _, round := range schedule.Rounds {
		var groups []events.Group
		for _, group := range round {
			var nodes []string
			for _, node := range rings.of(group) {
				nodes = append(nodes, names[node])
			}
			groups = append(groups, events.Group{Layers: events.Range(group.Layers), Nodes: nodes})
		}
		r.plan.Sync.Rounds = append(r.plan.Sync.Rounds, events.Round{Groups: groups})
	}
	return nil
}

// rings are the orders in which a proposal has its nodes reduce, by their first layer, ascending.
type rings []rounds.Group

// newRings reads a proposal. A node that is not among names is left out.
func newRings(sync events.Sync, names []string) (proposed rings) {
	index := make(map[string]int, len(names))
	for i, name := range names {
		index[name] = i
	}
	for _, round := range sync.Rounds {
		for _, group := range round.Groups {
			ring := rounds.Group{Layers: layers.Range(group.Layers)}
			for _, name := range group.Nodes {
				if i, isIn := index[name]; isIn {
					ring.Nodes = append(ring.Nodes, i)
				}
			}
			proposed = append(proposed, ring)
		}
	}
	slices.SortStableFunc(proposed, func(a, b rounds.Group) int { return cmp.Compare(a.Layers.First, b.Layers.First) })
	return proposed
}

// of returns the nodes of a group in their order.
func (r rings) of(group rounds.Group) []int {
	at, _ := slices.BinarySearchFunc(r, group.Layers.First+1, func(ring rounds.Group, layer int) int {
		return cmp.Compare(ring.Layers.First, layer)
	})
	if at == 0 || !slices.Equal(slices.Sorted(slices.Values(r[at-1].Nodes)), group.Nodes) {
		return group.Nodes
	}
	return r[at-1].Nodes
}

// reduction returns how long an all-reduce among some of names lasts: each of g holders sends the next one in the ring 2(g-1) times
// a g-th of the gradients, as fast as the slowest link of the ring. If the request does not tell how large gradients are, they
// are taken to be as large as the state: only how the groups compare matters then.
func (r *restoration) reduction(names []string, rings rings) func(rounds.Group) int64 {
	links, roundTrips, gradients := r.unusual(names), r.roundTrips(names), r.Gradients
	if len(gradients) == 0 {
		gradients = r.Units
	}
	var nodes []int // whose links were looked at last: all layers often have the same holders
	perByte, roundTrip := 0.0, 0.0
	return func(group rounds.Group) int64 {
		if len(group.Nodes) < 2 {
			return 0
		}
		if ring := rings.of(group); !slices.Equal(nodes, ring) {
			nodes = slices.Clone(ring)
			perByte, roundTrip = 1/r.slowest(links, ring), 0
			for _, node := range ring {
				roundTrip = max(roundTrip, roundTrips[node])
			}
		}
		bytes := 0.0
		for _, gradient := range gradients[group.Layers.First:group.Layers.End] {
			bytes += float64(gradient)
		}
		others := float64(len(group.Nodes) - 1)
		seconds := 2*others*perByte*bytes/float64(len(group.Nodes)) + others*roundTrip
		return int64(1e9 * min(seconds, mostSeconds))
	}
}

// slowest returns the bytes a second of the slowest link between neighbours of a ring, in its worse direction. A link that is not
// listed counts as usual anywhere, whatever its sites are: the links of all-reduces are measured before others, and so they are
// listed where they are slow. O(nodes).
func (r *restoration) slowest(unusual map[linkOf]float64, ring []int) float64 {
	usual, slowest := r.usual().BandwidthBytesPerSecond, math.Inf(1)
	for i, node := range ring {
		next := ring[(i+1)%len(ring)]
		for _, link := range []linkOf{{node, next}, {next, node}} {
			rate, isUnusual := unusual[link]
			if !isUnusual {
				rate = usual
			}
			slowest = min(slowest, rate)
		}
	}
	return slowest
}
