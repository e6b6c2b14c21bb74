// Package protocol holds the rules of a negotiation as pure functions: from which step training can go on, at
// which step everybody stops, and what a second change does to a change under way.
package protocol

import "slices"

// Held is what one live node can give: for a range of layers, the versions it has (in completed steps).
type Held struct {
	Node       string
	First, End int
	Steps      []uint64
}

// Resume is the point from which training goes on after a step could not end.
type Resume struct {
	Step    uint64
	Holders map[string][]int // node -> the layers it has at Step, ascending
}

// ResumePoint returns the newest step for which every layer has a live holder. Whoever is ahead
// of it rolls back to the version it kept, whoever lacks it fetches (Chaos IV-B: restart of an interrupted
// all-reduce). In synchronous training two survivors are at most one step apart, so one kept version suffices.
//
// Without such a step it returns ok = false and the layers nobody holds at any step; that list is empty when every
// layer has a holder but no step is common. O(holdings x layers).
func ResumePoint(layers int, held []Held) (resume Resume, missing []int, ok bool) {
	covered := map[uint64]map[int]bool{}
	anywhere := map[int]bool{}
	for _, h := range held {
		for _, step := range h.Steps {
			if covered[step] == nil {
				covered[step] = map[int]bool{}
			}
			for layer := max(h.First, 0); layer < min(h.End, layers); layer++ {
				covered[step][layer] = true
				anywhere[layer] = true
			}
		}
	}
	best, found := uint64(0), false
	for step, have := range covered {
		if len(have) == layers && (!found || step > best) {
			best, found = step, true
		}
	}
	if !found {
		for layer := range layers {
			if !anywhere[layer] {
				missing = append(missing, layer)
			}
		}
		return Resume{}, missing, false
	}
	return Resume{Step: best, Holders: HoldersAt(best, layers, held)}, nil, true
}

// HoldersAt returns which layers each node has at a step, ascending.
func HoldersAt(step uint64, layers int, held []Held) map[string][]int {
	holders := map[string][]int{}
	for _, h := range held {
		if !slices.Contains(h.Steps, step) {
			continue
		}
		for layer := max(h.First, 0); layer < min(h.End, layers); layer++ {
			holders[h.Node] = append(holders[h.Node], layer)
		}
	}
	for node := range holders {
		slices.Sort(holders[node])
		holders[node] = slices.Compact(holders[node])
	}
	return holders
}

// Ranges folds ascending layers into half-open ranges.
func Ranges(layers []int) [][2]int {
	var ranges [][2]int
	for _, layer := range layers {
		if n := len(ranges); n > 0 && ranges[n-1][1] == layer {
			ranges[n-1][1]++
			continue
		}
		ranges = append(ranges, [2]int{layer, layer + 1})
	}
	return ranges
}
