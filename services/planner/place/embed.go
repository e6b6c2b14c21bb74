package place

import "slices"

// longestPath is the most stages for which their best order is worked out: it takes 2^stages * stages^2 steps. The order of more stages is
// only improved.
const longestPath = 9

// embed puts the groups of a grid into their best order and pairs their nodes in the best way, so that the slowest
// links between stages are the fastest possible; who is in a group stays. It reports whether that made the layout
// cheaper.
//
// Only in a grid; elsewhere it changes nothing.
func (l *layout) embed() bool {
	columns := l.traffic.columns
	if len(columns) < 2 || !l.traffic.grid() {
		return false
	}
	before, was := l.cost(), slices.Clone(l.nodeOf)
	weight := make([][]float64, len(columns))
	for i := range columns {
		weight[i] = make([]float64, len(columns))
		for j := range i {
			weight[i][j], _ = l.pairing(l.members(i), l.members(j))
			weight[j][i] = weight[i][j]
		}
	}
	order := shortPath(weight)
	var groups [][]int
	for _, column := range order {
		groups = append(groups, l.members(column))
	}
	for stage, group := range groups {
		if stage > 0 {
			_, partner := l.pairing(groups[stage-1], group)
			group = reordered(group, partner)
			groups[stage] = group
		}
		for i, seat := range columns[stage] {
			l.nodeOf[seat] = group[i]
		}
	}
	l.measure()
	if l.cost() < before-rounding {
		return true
	}
	copy(l.nodeOf, was)
	l.measure()
	return false
}

const rounding = 1e-12

// members are the nodes of a column in the order of the pipelines.
func (l *layout) members(column int) []int {
	nodes := make([]int, len(l.traffic.columns[column]))
	for i, seat := range l.traffic.columns[column] {
		nodes[i] = l.nodeOf[seat]
	}
	return nodes
}

func (l *layout) pairing(left, right []int) (seconds float64, partner []int) {
	hops := make([]float64, 0, len(left)*len(right))
	for _, a := range left {
		row := l.links.row(a)
		for _, b := range right {
			hops = append(hops, l.hopOver(row[b]))
		}
	}
	return Pairing(hops, len(left))
}

func reordered(group, partner []int) []int {
	ordered := make([]int, len(group))
	for i, j := range partner {
		ordered[i] = group[j]
	}
	return ordered
}
