package place

// Network is the links between nodes, as DT-FM has them: symmetric, both directions averaged.
type Network struct {
	DelaySeconds   [][]float64
	BytesPerSecond [][]float64
}

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
