package window

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// node is one that wants or holds something, or did lately.
type node struct {
	reads   time.Time // last
	granted int64     // which of all grants was its last
	crowded bool      // one of its connections has no room beside what others hold
}

// note notes which nodes read: who is between two parts keeps its share.
func (w *Window) note(now time.Time) {
	if w.nodes == nil {
		w.nodes = map[string]*node{}
	}
	for _, reader := range w.Readers() {
		if w.nodes[reader.Node] == nil {
			w.nodes[reader.Node] = &node{}
		}
		w.nodes[reader.Node].reads = now
	}
	maps.DeleteFunc(w.nodes, func(_ string, n *node) bool { return now.Sub(n.reads) >= readsLasts })
}

// turns returns the wants in the order in which they are served: first that of the node which holds least, with what it asked for
// longer; of nodes alike, that which was granted nothing for longest. So a node waits behind one want of each other, however many and
// old those are. O(wants log wants).
func (w *Window) turns(held map[string]load) []*want {
	type turn struct {
		want          *want
		before, since int64 // bytes that its node holds and asked for longer; the node's last grant
	}
	turns, longer := make([]turn, len(w.wants)), map[string]int64{}
	for i, want := range w.wants {
		name := want.Reader.Node
		turns[i] = turn{want, held[name].bytes + longer[name], w.nodes[name].granted}
		longer[name] += want.Bytes
	}
	slices.SortStableFunc(turns, func(a, b turn) int {
		return cmp.Or(cmp.Compare(a.before, b.before), cmp.Compare(a.since, b.since))
	})
	wants := make([]*want, len(turns))
	for i, turn := range turns {
		wants[i] = turn.want
	}
	return wants
}

// heldBy reports whether a connection of a node holds a part.
func (p *part) heldBy(node string) bool {
	if p == nil {
		return false
	}
	for reader := range p.holders {
		if reader.Node == node {
			return true
		}
	}
	return false
}

// load is how much a node holds.
type load struct {
	bytes int64
	parts int
}

// held is how much each node holds, what several connections of one share counting once, and which connections hold something.
func (w *Window) held() (nodes map[string]load, connections map[Reader]bool) {
	nodes, connections = map[string]load{}, map[Reader]bool{}
	for _, p := range w.parts {
		var counted []string
		for reader := range p.holders {
			connections[reader] = true
			if name := reader.Node; !slices.Contains(counted, name) {
				counted = append(counted, name)
				nodes[name] = load{nodes[name].bytes + p.bytes, nodes[name].parts + 1}
			}
		}
	}
	return nodes, connections
}

// share is how much a node may hold while so many read.
func (w *Window) share() int64 {
	return min(ReaderBytes, TotalBytes/int64(max(len(w.nodes), 1)))
}
