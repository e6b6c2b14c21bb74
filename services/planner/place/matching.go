package place

import (
	"cmp"
	"slices"
	"sort"

	"github.com/reknit/reknit/services/planner/estimate"
)

// kind is what tells nodes, or places, apart: the layers they hold or train, and the memory and the speed they have or
// need.
type kind struct {
	layers estimate.Range
	bytes  int64
	speed  float64
}

// grouped lists the members of each kind, by first member; members ascending.
func grouped(kinds []kind) [][]int {
	var groups [][]int
	at := map[kind]int{} // looked up, never ranged over
	for member, k := range kinds {
		group, known := at[k]
		if !known {
			group = len(groups)
			at[k] = group
			groups = append(groups, nil)
		}
		groups[group] = append(groups[group], member)
	}
	return groups
}

// kinds of nodes and of seats. Nodes that can take the same seats are of one kind, whatever more they have.
func (p Problem) kinds() (nodes, seats []kind) {
	nodes, seats = make([]kind, len(p.Holds)), make([]kind, len(p.Holds))
	limited, paced := p.NeedBytes != nil && p.MemoryBytes != nil, p.NeedSpeed != nil && p.Speed != nil
	bytes, speeds := distinct(p.NeedBytes), distinct(p.NeedSpeed)
	for node := range nodes {
		nodes[node].layers = p.Holds[node]
		if limited {
			nodes[node].bytes = most(bytes, p.MemoryBytes[node])
		}
		if paced {
			nodes[node].speed = most(speeds, p.Speed[node])
		}
	}
	for seat := range seats {
		if seat >= len(p.Places) {
			continue
		}
		seats[seat].layers = p.Places[seat].Layers
		if limited {
			seats[seat].bytes = p.NeedBytes[seat]
		}
		if paced {
			seats[seat].speed = p.NeedSpeed[seat]
		}
	}
	return nodes, seats
}

func distinct[T cmp.Ordered](needs []T) []T {
	return slices.Compact(slices.Sorted(slices.Values(needs)))
}

// most is the largest of the needs that someone meets who has so much; zero: none.
func most[T cmp.Ordered](needs []T, has T) (need T) {
	at, exact := slices.BinarySearch(needs, has)
	if exact {
		return has
	}
	if at > 0 {
		need = needs[at-1]
	}
	return need
}

// leastMoved gives every seat a node: the most that one node must fetch is least, and then the sum is. Seats beyond the
// places are idle and take whom they get. It fails where some place has no node with the memory and the speed for it.
func (p Problem) leastMoved() (nodeOf []int, ok bool) {
	nodeKinds, seatKinds := p.kinds()
	nodes, seats := grouped(nodeKinds), grouped(seatKinds)
	cost := make([][]int64, len(nodes))
	var limits []int64
	for i, group := range nodes {
		cost[i] = make([]int64, len(seats))
		for j, wanted := range seats {
			cost[i][j] = forbidden
			if p.fits(group[0], wanted[0]) {
				cost[i][j] = p.missing(group[0], wanted[0])
				limits = append(limits, cost[i][j])
			}
		}
	}
	slices.Sort(limits)
	limits = slices.Compact(limits)
	supply, demand := sizes(nodes), sizes(seats)
	least := sort.Search(len(limits), func(i int) bool { return possible(supply, demand, cost, limits[i]) })
	if least == len(limits) {
		return nil, len(p.Holds) == 0
	}
	return p.seated(nodes, seats, transport(supply, demand, limited(cost, limits[least], 1))), true
}

func sizes(groups [][]int) []int {
	sizes := make([]int, len(groups))
	for i, group := range groups {
		sizes[i] = len(group)
	}
	return sizes
}

// seated gives the seats their nodes in order: of the kinds allotted, the one that lacks least, and of its nodes the
// first.
func (p Problem) seated(nodes, seats [][]int, allotted [][]int) []int {
	nodeOf, kindOf := make([]int, len(p.Holds)), make([]int, len(p.Holds))
	for j, wanted := range seats {
		for _, seat := range wanted {
			kindOf[seat] = j
		}
	}
	for seat := range nodeOf {
		best := -1
		for i := range nodes {
			if allotted[i][kindOf[seat]] > 0 &&
				(best < 0 || p.missing(nodes[i][0], seat) < p.missing(nodes[best][0], seat)) {
				best = i
			}
		}
		allotted[best][kindOf[seat]]--
		nodeOf[seat] = nodes[best][0]
		if len(nodes[best]) > 1 { // the last one stays as its kind's example
			nodes[best] = nodes[best][1:]
		}
	}
	return nodeOf
}
