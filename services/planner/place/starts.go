package place

// nearest orders the nodes so that each is followed by the nearest of those left. O(nodes^2).
func (l *layout) nearest(first int) []int {
	order := []int{first}
	used := make([]bool, l.links.nodes)
	used[first] = true
	for len(order) < len(used) {
		best, from := -1, l.links.row(order[len(order)-1])
		for node := range used {
			if !used[node] && (best < 0 || l.hopOver(from[node]) < l.hopOver(from[best])) {
				best = node
			}
		}
		used[best] = true
		order = append(order, best)
	}
	return order
}
