package place

import (
	"math"
	"slices"
)

// linkage joins nodes to groups, the two groups that are nearest to each other in the mean of their members first (average
// linkage).
type linkage struct {
	groups [][]int
	apart  [][]float64 // between groups
}

// newLinkage begins with each node alone. apart is symmetric, and the linkage's from then on.
func newLinkage(apart [][]float64) *linkage {
	k := &linkage{apart: apart}
	for node := range apart {
		k.groups = append(k.groups, []int{node})
	}
	return k
}

// Alike groups nodes that are less than so far apart in the mean (average linkage): the nearest first, each group ascending. Infinity is
// between nodes that are never in one group. apart is symmetric and spent after. O(nodes^3 / 6).
func Alike(apart [][]float64, within float64) [][]int {
	k := newLinkage(apart)
	for joined := true; joined; {
		_, joined = k.join(len(apart), within)
	}
	for _, group := range k.groups {
		slices.Sort(group)
	}
	return k.groups
}

// join joins the two nearest groups of at most so many nodes together, if they are less than so far apart, and returns how far they
// were. O(groups^2).
func (k *linkage) join(most int, within float64) (distance float64, joined bool) {
	a, b, distance := -1, -1, within
	for j := range k.groups {
		for i, apart := range k.apart[j][:j] {
			if apart < distance && len(k.groups[i])+len(k.groups[j]) <= most {
				a, b, distance = i, j, apart
			}
		}
	}
	if a < 0 {
		return 0, false
	}
	one, other := float64(len(k.groups[a])), float64(len(k.groups[b]))
	for c := range k.groups {
		mean := (one*k.apart[a][c] + other*k.apart[b][c]) / (one + other)
		k.apart[a][c], k.apart[c][a] = mean, mean
	}
	k.groups[a] = slices.Concat(k.groups[a], k.groups[b])
	k.groups = slices.Delete(k.groups, b, b+1)
	k.apart = slices.Delete(k.apart, b, b+1)
	for c := range k.apart {
		k.apart[c] = slices.Delete(k.apart[c], b, b+1)
	}
	return distance, true
}

// packed fills bins of seats with groups of near nodes: what is left of the largest group goes where most room is. Groups are cut
// at the same seats then, as far as may be, so that few stages are far from the next. O(nodes^3 / 6).
func (l *layout) packed(bins [][]int) []int {
	size := 0
	for _, bin := range bins {
		size = max(size, len(bin))
	}
	k := newLinkage(l.apart())
	for joined := true; joined; {
		_, joined = k.join(size, math.Inf(1))
	}
	nodeOf, left := make([]int, len(l.nodeOf)), slices.Clone(bins)
	for len(k.groups) > 0 {
		group, bin := longest(k.groups), longest(left)
		taken := min(len(k.groups[group]), len(left[bin]))
		for i, node := range k.groups[group][:taken] {
			nodeOf[left[bin][i]] = node
		}
		left[bin] = left[bin][taken:]
		if k.groups[group] = k.groups[group][taken:]; len(k.groups[group]) == 0 {
			k.groups = slices.Delete(k.groups, group, group+1)
		}
	}
	return nodeOf
}

func longest(lists [][]int) (at int) {
	for i, list := range lists {
		if len(list) > len(lists[at]) {
			at = i
		}
	}
	return at
}

// apart is the seconds of a hop between any two nodes.
func (l *layout) apart() [][]float64 {
	apart := make([][]float64, l.links.nodes)
	for a := range apart {
		for _, link := range l.links.row(a) {
			apart[a] = append(apart[a], l.hopOver(link))
		}
	}
	return apart
}
