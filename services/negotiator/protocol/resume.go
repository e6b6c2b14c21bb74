// Package protocol holds the rules of a negotiation as pure functions: what counts of what nodes say they hold, from
// which step training can go on, at which step everybody stops, who may be given up, and what a second change does to a
// change under way.
package protocol

import "slices"

// Held is what one node has of a range of units, as versions in completed steps.
type Held struct {
	Node       string
	First, End int
	Steps      []uint64
}

// Resume is the point from which training goes on after a step could not end.
type Resume struct {
	Step    uint64
	Holders map[string][]int // node -> the units it has at Step, ascending
}

// ResumePoint returns the newest step for which every unit has a live holder. Nodes ahead of it roll back to the
// version they kept, and nodes that lack it fetch it (Chaos IV-B: restart of an interrupted all-reduce). In synchronous
// training two survivors are at most one step apart, so one kept version suffices.
//
// Without such a step it returns ok = false and the units that nobody holds at any step; that list is empty where every
// unit has a holder but no step is common. O(holdings x units).
func ResumePoint(units int, held []Held) (resume Resume, missing []int, ok bool) {
	covered := map[uint64]map[int]bool{}
	anywhere := map[int]bool{}
	for _, h := range held {
		for _, step := range h.Steps {
			if covered[step] == nil {
				covered[step] = map[int]bool{}
			}
			for unit := max(h.First, 0); unit < min(h.End, units); unit++ {
				covered[step][unit] = true
				anywhere[unit] = true
			}
		}
	}
	best, found := uint64(0), false
	for step, have := range covered {
		if len(have) == units && (!found || step > best) {
			best, found = step, true
		}
	}
	if !found {
		for unit := range units {
			if !anywhere[unit] {
				missing = append(missing, unit)
			}
		}
		return Resume{}, missing, false
	}
	return Resume{Step: best, Holders: HoldersAt(best, units, held)}, nil, true
}

// HoldersAt returns which units each node has at a step, ascending.
func HoldersAt(step uint64, units int, held []Held) map[string][]int {
	holders := map[string][]int{}
	for _, h := range held {
		if !slices.Contains(h.Steps, step) {
			continue
		}
		for unit := max(h.First, 0); unit < min(h.End, units); unit++ {
			holders[h.Node] = append(holders[h.Node], unit)
		}
	}
	for node := range holders {
		slices.Sort(holders[node])
		holders[node] = slices.Compact(holders[node])
	}
	return holders
}

// Ranges folds ascending units into half-open ranges.
func Ranges(units []int) [][2]int {
	var ranges [][2]int
	for _, unit := range units {
		if n := len(ranges); n > 0 && ranges[n-1][1] == unit {
			ranges[n-1][1]++
			continue
		}
		ranges = append(ranges, [2]int{unit, unit + 1})
	}
	return ranges
}
