package place

import "math"

const forbidden = math.MaxInt64

// transport moves all supply to all demand, of equal sum, at the least total cost over links that cost at most limit.
// It returns how much goes from each source to each sink, nil where not all can.
//
// Cheapest augmenting paths by Bellman and Ford: O(paths * (sources + sinks) * sources * sinks), in practice a few
// rounds a path.
func transport(supply, demand []int, cost [][]int64, limit int64) [][]int {
	t := &flow{cost: cost, limit: limit, supply: append([]int(nil), supply...), demand: append([]int(nil), demand...)}
	for range supply {
		t.moved = append(t.moved, make([]int, len(demand)))
	}
	for t.unsent() {
		sink := t.cheapest()
		if sink < 0 {
			return nil
		}
		t.send(sink)
	}
	return t.moved
}

// flow is a transport under way: what is left to send, and the cheapest paths from any source that has some left.
type flow struct {
	cost           [][]int64
	limit          int64
	supply, demand []int
	moved          [][]int

	toSource, toSink         []int64 // cost of the path so far
	sourceBefore, sinkBefore []int   // sourceBefore[sink], sinkBefore[source]; -1 where a path starts
}

func (t *flow) unsent() bool {
	for _, left := range t.supply {
		if left > 0 {
			return true
		}
	}
	return false
}

// cheapest finds the cheapest paths and returns the sink with demand left that is reached at least cost, or -1.
func (t *flow) cheapest() int {
	t.toSource, t.toSink = unreached(len(t.supply)), unreached(len(t.demand))
	t.sourceBefore, t.sinkBefore = make([]int, len(t.demand)), make([]int, len(t.supply))
	for source, left := range t.supply {
		t.sinkBefore[source] = -1
		if left > 0 {
			t.toSource[source] = 0
		}
	}
	for t.relax() {
	}
	best := -1
	for sink, left := range t.demand {
		if left > 0 && t.toSink[sink] < forbidden && (best < 0 || t.toSink[sink] < t.toSink[best]) {
			best = sink
		}
	}
	return best
}

func unreached(n int) []int64 {
	costs := make([]int64, n)
	for i := range costs {
		costs[i] = forbidden
	}
	return costs
}

// relax shortens paths by one link, forward where it is allowed or back where something was moved.
func (t *flow) relax() (shorter bool) {
	for source, row := range t.cost {
		for sink, cost := range row {
			if cost > t.limit || cost == forbidden {
				continue
			}
			if at := t.toSource[source]; at < forbidden && at+cost < t.toSink[sink] {
				t.toSink[sink], t.sourceBefore[sink], shorter = at+cost, source, true
			}
			if at := t.toSink[sink]; t.moved[source][sink] > 0 && at < forbidden && at-cost < t.toSource[source] {
				t.toSource[source], t.sinkBefore[source], shorter = at-cost, sink, true
			}
		}
	}
	return shorter
}

// send moves as much as the path to the sink carries.
func (t *flow) send(last int) {
	amount := t.demand[last]
	first := t.walk(last, func(source, sink, back int) {
		if back >= 0 {
			amount = min(amount, t.moved[source][back])
		}
	})
	amount = min(amount, t.supply[first])
	t.walk(last, func(source, sink, back int) {
		t.moved[source][sink] += amount
		if back >= 0 {
			t.moved[source][back] -= amount
		}
	})
	t.supply[first] -= amount
	t.demand[last] -= amount
}

// walk goes back along the path to a sink, link by link: source to sink, and where the path came to that source by
// taking something back, from which sink. It returns the path's first source.
func (t *flow) walk(sink int, link func(source, sink, back int)) int {
	for {
		source := t.sourceBefore[sink]
		back := t.sinkBefore[source]
		link(source, sink, back)
		if back < 0 {
			return source
		}
		sink = back
	}
}
