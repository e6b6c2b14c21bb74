package machine

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"

	"github.com/reknit/reknit/services/restorer/replicate"
)

// Each giver of a unit says one offer, which all nodes hear, and of which the log keeps the newest 256 of that unit
// (events.EventStream). A node that joined brought 576 offers if all of a thousand holders of four layers gave their
// part, and as many to each of the thousand.
const (
	// leastSources is from how many nodes one fetches what the same nodes hold, and from more where their links do not fill
	// its downlink.
	leastSources = 16
	// mostGivers is how many nodes give a unit to all who fetch it. The log keeps the offers of two attempts.
	mostGivers = 128
)

// fewGivers leaves each unit the holders with the fastest links to those who need it, and to whoever none of these reaches the
// fastest that does. O(needs x holders), of units that the same nodes need and hold once.
func fewGivers(fetch *replicate.Fetch) {
	needing := make([][]int, len(fetch.Holders)) // by unit
	for _, need := range fetch.Needs {
		needing[need.Layer] = append(needing[need.Layer], need.Node)
	}
	done := map[string][]int{} // by who needs and who holds
	for unit, nodes := range needing {
		if len(fetch.Holders[unit]) <= mostGivers || len(nodes) == 0 {
			continue
		}
		key := keyOf(nodes, fetch.Holders[unit])
		if few, known := done[key]; known {
			fetch.Holders[unit] = few
			continue
		}
		sorted := fastest(fetch.Holders[unit], nodes[0], func(holder int) (sum float64) {
			for _, node := range nodes {
				sum += fetch.LinkBytesPerSecond[holder][node]
			}
			return sum
		})
		few := slices.Clone(sorted[:mostGivers])
		for _, node := range nodes {
			byRate := func(a, b int) int {
				return cmp.Compare(fetch.LinkBytesPerSecond[a][node], fetch.LinkBytesPerSecond[b][node])
			}
			if reached := slices.MaxFunc(few, byRate); fetch.LinkBytesPerSecond[reached][node] == 0 {
				few = append(few, slices.MaxFunc(sorted, byRate))
			}
		}
		slices.Sort(few)
		fetch.Holders[unit] = slices.Compact(few)
		done[key] = fetch.Holders[unit]
	}
}

// keyOf returns bytes that are equal for equal lists, for use as a map key.
func keyOf(lists ...[]int) string {
	var key []byte
	for _, list := range lists {
		key = binary.AppendUvarint(key, uint64(len(list)))
		for _, number := range list {
			key = binary.AppendUvarint(key, uint64(number))
		}
	}
	return string(key)
}

// fewSources leaves each node the links to few holders of what it needs: the fastest, where those to whom others turn, too,
// count for so much less. Units with one list of holders come from the same: whoever gives one of them gives all. O(needs), for
// each node and list of holders O(holders x log holders), and names^2 for who fetches.
func fewSources(fetch *replicate.Fetch) {
	links := fetch.LinkBytesPerSecond
	asked, asks := make([]float64, len(links)), map[linkOf]bool{}
	type asking struct {
		node    int
		holders *int // the first of their list
	}
	done := map[asking]bool{}
	for _, need := range fetch.Needs {
		asking := asking{need.Node, &fetch.Holders[need.Layer][0]}
		if done[asking] {
			continue
		}
		done[asking] = true
		sorted := fastest(fetch.Holders[need.Layer], need.Node, func(holder int) float64 {
			if asks[linkOf{holder, need.Node}] {
				return math.Inf(1) // it gives other units already
			}
			return links[holder][need.Node] / (1 + asked[holder])
		})
		sum := 0.0
		for i, holder := range sorted {
			rate, link := links[holder][need.Node], linkOf{holder, need.Node}
			if rate == 0 || i >= leastSources && sum >= fetch.IngressBytesPerSecond[need.Node] {
				break
			}
			if sum += rate; !asks[link] {
				asks[link] = true
				asked[holder]++
			}
		}
	}
	cleared := make([]bool, len(links))
	for _, need := range fetch.Needs {
		if cleared[need.Node] {
			continue
		}
		cleared[need.Node] = true
		for holder := range links {
			if !asks[linkOf{holder, need.Node}] {
				links[holder][need.Node] = 0
			}
		}
	}
}

// fastest returns nodes, those of the greatest rates first, and of equal ones those first that come next behind one: not
// everybody is to ask the same.
func fastest(nodes []int, behind int, rateOf func(node int) float64) []int {
	rates := make(map[int]float64, len(nodes))
	for _, node := range nodes {
		rates[node] = rateOf(node)
	}
	first, _ := slices.BinarySearch(nodes, behind)
	sorted := slices.Concat(nodes[first:], nodes[:first])
	slices.SortStableFunc(sorted, func(a, b int) int { return cmp.Compare(rates[b], rates[a]) })
	return sorted
}
