package place

import (
	"cmp"
	"math"
	"slices"
)

const forbidden = math.MaxInt64

// transport moves all supply to all demand, of equal sum, at the least total cost over links that are not forbidden. It
// returns how much goes from each source to each sink, nil where not all can.
//
// Cheapest augmenting paths by Bellman and Ford. O(paths * (sources + sinks) * sources * sinks) at worst, in practice
// about one look at each link for each source.
func transport(supply, demand []int, cost [][]int64) [][]int {
	t := newFlow(supply, demand, cost)
	if !t.sendAll(t.sendNearest) {
		return nil
	}
	return t.moved
}

// possible reports whether all supply can be moved to all demand over links that cost at most limit.
func possible(supply, demand []int, cost [][]int64, limit int64) bool {
	t := newFlow(supply, demand, limited(cost, limit, 0))
	return t.sendAll(t.sendEverywhere)
}

// limited forbids the links that cost more than the limit. The costs of the others are multiplied by times.
func limited(cost [][]int64, limit, times int64) [][]int64 {
	links := make([][]int64, len(cost))
	for i, row := range cost {
		links[i] = make([]int64, len(row))
		for j, each := range row {
			links[i][j] = forbidden
			if each <= limit {
				links[i][j] = times * each
			}
		}
	}
	return links
}

// flow is a transport under way: what is left to send, and the cheapest paths from any source that has some left.
type flow struct {
	cost           [][]int64
	supply, demand []int
	moved          [][]int
	sinks          [][]int // per source: the sinks to which it moved some

	toSource, toSink         []int64 // cost of the path so far
	sourceBefore, sinkBefore []int   // sourceBefore[sink], sinkBefore[source]; -1 where a path starts
	looked                   []int64 // per source: toSource when paths that go on from it were looked for last
}

func newFlow(supply, demand []int, cost [][]int64) *flow {
	t := &flow{
		cost: cost, supply: slices.Clone(supply), demand: slices.Clone(demand), sinks: make([][]int, len(supply)),
		toSource: make([]int64, len(supply)), toSink: make([]int64, len(demand)), looked: make([]int64, len(supply)),
		sourceBefore: make([]int, len(demand)), sinkBefore: make([]int, len(supply)),
	}
	for range supply {
		t.moved = append(t.moved, make([]int, len(demand)))
	}
	return t
}

// sendAll looks for paths and sends along them until nothing is left, and reports whether all could be sent.
func (t *flow) sendAll(along func(sinks []int) (sent bool)) bool {
	for slices.Max(t.supply) > 0 {
		t.cheapest()
		if !along(t.nearest()) {
			return false
		}
	}
	return true
}

// sendNearest sends along one path after the other as long as these stay the cheapest: while they take nothing back, and
// their sources have more.
func (t *flow) sendNearest(sinks []int) (sent bool) {
	for _, sink := range sinks {
		source, isDirect := t.send(sink)
		if sent = true; !isDirect || t.supply[source] == 0 {
			break
		}
	}
	return sent
}

// sendEverywhere sends along all paths, as far as those before have left them open. Flow along a cheapest path leaves
// no cheaper way behind, so that this is right too, but among equally cheap ways it takes others.
func (t *flow) sendEverywhere(sinks []int) (sent bool) {
	for _, sink := range sinks {
		left := t.demand[sink]
		t.send(sink)
		sent = sent || t.demand[sink] < left
	}
	return sent
}

// cheapest finds the cheapest path to each sink.
func (t *flow) cheapest() {
	for _, costs := range [][]int64{t.toSource, t.toSink, t.looked} {
		for i := range costs {
			costs[i] = forbidden
		}
	}
	for source, left := range t.supply {
		t.sinkBefore[source] = -1
		if left > 0 {
			t.toSource[source] = 0
		}
	}
	for t.relax() {
	}
}

// relax shortens paths by one link, forward where it is allowed or back where something was moved. A source as near as
// when its links were looked at has nothing to add, unless a way back to it got shorter.
func (t *flow) relax() (shorter bool) {
	for source := range t.cost {
		switch {
		case slices.ContainsFunc(t.sinks[source], func(sink int) bool { return t.isShorterBack(source, sink) }):
			shorter = true
			t.lookBoth(source)
		case t.toSource[source] < t.looked[source]:
			shorter = t.look(source) || shorter
		}
	}
	return shorter
}

// isShorterBack reports whether the path to a source is shorter by taking back what it moved to a sink.
func (t *flow) isShorterBack(source, sink int) bool {
	return t.toSink[sink] < forbidden && t.toSink[sink]-t.cost[source][sink] < t.toSource[source]
}

// look goes on from a source, forward.
func (t *flow) look(source int) (shorter bool) {
	at := t.toSource[source]
	t.looked[source] = at
	for sink, cost := range t.cost[source] {
		if cost < forbidden && at+cost < t.toSink[sink] {
			t.toSink[sink], t.sourceBefore[sink], shorter = at+cost, source, true
		}
	}
	return shorter
}

// lookBoth goes on from a source and back to it, link by link.
func (t *flow) lookBoth(source int) {
	t.looked[source] = t.toSource[source]
	for sink, cost := range t.cost[source] {
		if at := t.toSource[source]; cost < forbidden && at < forbidden && at+cost < t.toSink[sink] {
			t.toSink[sink], t.sourceBefore[sink] = at+cost, source
		}
		if t.moved[source][sink] > 0 && t.isShorterBack(source, sink) {
			t.toSource[source], t.sinkBefore[source] = t.toSink[sink]-cost, sink
		}
	}
}

// nearest are the sinks that a path leads to, those first that are reached at least cost.
func (t *flow) nearest() []int {
	var open []int
	for sink, left := range t.demand {
		if left > 0 && t.toSink[sink] < forbidden {
			open = append(open, sink)
		}
	}
	slices.SortStableFunc(open, func(a, b int) int { return cmp.Compare(t.toSink[a], t.toSink[b]) })
	return open
}

// send moves as much as the path to the sink carries. It returns the path's source, and whether it takes nothing back.
func (t *flow) send(last int) (first int, isDirect bool) {
	amount, links := t.demand[last], 0
	first = t.walk(last, func(source, sink, back int) {
		if links++; back >= 0 {
			amount = min(amount, t.moved[source][back])
		}
	})
	amount = min(amount, t.supply[first])
	t.walk(last, func(source, sink, back int) {
		t.move(source, sink, amount)
		if back >= 0 {
			t.move(source, back, -amount)
		}
	})
	t.supply[first] -= amount
	t.demand[last] -= amount
	return first, links == 1
}

func (t *flow) move(source, sink, amount int) {
	had := t.moved[source][sink]
	t.moved[source][sink] += amount
	switch has := t.moved[source][sink]; {
	case had == 0 && has > 0:
		t.sinks[source] = append(t.sinks[source], sink)
	case had > 0 && has == 0:
		t.sinks[source] = slices.DeleteFunc(t.sinks[source], func(other int) bool { return other == sink })
	}
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
