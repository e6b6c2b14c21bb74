package place

import "slices"

// link is one link, the same in both directions.
type link struct{ delay, perByte float64 }

// links are those between all nodes.
type links struct {
	nodes int
	table []link
}

func (l *links) row(node int) []link { return l.table[node*l.nodes : (node+1)*l.nodes] }

func newLinks(n Network) *links {
	l := &links{nodes: len(n.DelaySeconds), table: make([]link, len(n.DelaySeconds)*len(n.DelaySeconds))}
	for a := range l.nodes {
		for b := range l.nodes {
			if a != b {
				l.row(a)[b] = link{n.DelaySeconds[a][b], 1 / n.BytesPerSecond[a][b]}
			}
		}
	}
	return l
}

// classes groups nodes with equal links to all others, and among themselves.
func (l *links) classes() [][]int {
	var classes [][]int
	for node := range l.nodes {
		at := slices.IndexFunc(classes, func(class []int) bool { return l.alike(class, node) })
		if at < 0 {
			classes = append(classes, []int{node})
			continue
		}
		classes[at] = append(classes[at], node)
	}
	return classes
}

func (l *links) alike(class []int, node int) bool {
	first := class[0]
	for other := range l.nodes {
		if other != first && other != node && l.row(first)[other] != l.row(node)[other] {
			return false
		}
	}
	return len(class) < 2 || l.row(first)[class[1]] == l.row(first)[node]
}
