package replicate

import "math"

// unlimited is the capacity of an edge that never limits.
const unlimited = math.MaxInt64

// network is a directed graph with capacities. Edges come in pairs: edge e^1 is the way back of edge e.
type network struct {
	to, next []int   // per edge: its head, and the next edge with the same tail
	rest     []int64 // per edge: capacity that is left
	first    []int   // per vertex: its first edge, -1 for none
	depth    []int   // of the search
	at       []int   // per vertex: the edge to try next
}

// vertex adds a vertex and returns its index.
func (n *network) vertex() int {
	n.first = append(n.first, -1)
	n.depth = append(n.depth, -1)
	n.at = append(n.at, -1)
	return len(n.first) - 1
}

// connect adds an edge without capacity and returns its index.
func (n *network) connect(tail, head int) int {
	edge := len(n.to)
	n.to = append(n.to, head, tail)
	n.next = append(n.next, n.first[tail], n.first[head])
	n.rest = append(n.rest, 0, 0)
	n.first[tail], n.first[head] = edge, edge+1
	return edge
}

// setCapacity also takes back what flows through the edge.
func (n *network) setCapacity(edge int, capacity int64) {
	n.rest[edge], n.rest[edge^1] = capacity, 0
}

func (n *network) flow(edge int) int64 { return n.rest[edge^1] }

// maximise pushes as much as possible from source to sink: Dinic's algorithm. Afterwards reachable tells the side of
// the source in a least cut.
func (n *network) maximise(source, sink int) (pushed int64) {
	for n.layer(source, sink) {
		copy(n.at, n.first)
		for amount := n.push(source, sink, unlimited); amount > 0; amount = n.push(source, sink, unlimited) {
			pushed += amount
		}
	}
	return pushed
}

func (n *network) reachable(vertex int) bool { return n.depth[vertex] >= 0 }

// layer numbers the vertices by their distance from source and reports whether the sink has one.
func (n *network) layer(source, sink int) bool {
	for v := range n.depth {
		n.depth[v] = -1
	}
	n.depth[source] = 0
	queue := []int{source}
	for len(queue) > 0 {
		v := queue[0]
		queue = queue[1:]
		for edge := n.first[v]; edge >= 0; edge = n.next[edge] {
			if w := n.to[edge]; n.rest[edge] > 0 && n.depth[w] < 0 {
				n.depth[w] = n.depth[v] + 1
				queue = append(queue, w)
			}
		}
		if n.depth[sink] >= 0 {
			return true // no vertex beyond leads there on a shortest path
		}
	}
	return false
}

// push sends up to most along one path of growing depth. Paths have few edges here, so recursion is shallow.
func (n *network) push(v, sink int, most int64) int64 {
	if v == sink {
		return most
	}
	for ; n.at[v] >= 0; n.at[v] = n.next[n.at[v]] {
		edge := n.at[v]
		w := n.to[edge]
		if n.rest[edge] == 0 || n.depth[w] != n.depth[v]+1 {
			continue
		}
		if amount := n.push(w, sink, min(most, n.rest[edge])); amount > 0 {
			n.rest[edge] -= amount
			n.rest[edge^1] += amount
			return amount
		}
	}
	return 0
}
