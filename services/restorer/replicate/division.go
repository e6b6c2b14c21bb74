package replicate

import (
	"encoding/binary"
	"fmt"
	"math"
)

// division is a fetch as a flow of shards: from the start to groups of needs, on through links to the nodes that send,
// and to the end.
type division struct {
	fetch      Fetch
	network    *network
	start, end int
	groups     []group
	demand     int64 // shards of all groups
	limits     []limit
	earliest   []float64       // per node: when the first byte that it sends can arrive
	senders    map[int]int     // vertex of each
	links      map[linkKey]int // vertex of each link that several groups share
}

// group is needs that the same nodes can serve alike: of the same holders and, where links limit, the same receiver.
type group struct {
	needs   []int // indices
	shards  int64
	entry   int   // edge from the start
	senders []int // nodes
	edges   []int // to each sender, or to the link to it
	owed    int64 // shards that each of them sends beside the flow
}

// flowing is how many shards are left to flow.
func (g group) flowing() int64 { return g.shards - g.owed*int64(len(g.edges)) }

// linkKey is the way from one node to another.
type linkKey struct{ from, to int }

// limit is an edge whose capacity grows with the time it is given: a node that sends, or a link.
type limit struct {
	edge            int
	start           float64 // before which nothing passes
	shardsPerSecond float64
	owed            int64 // shards of those that each holder sends anyway, which pass beside the flow
	fixed           bool  // its time is settled
	shards          int64
}

// within is how many of all shards pass by then, beside those that are owed. The tiny excess makes up for rounding where they fit
// exactly.
func (d *division) within(i int, seconds float64) int64 {
	l := &d.limits[i]
	moving := seconds - l.start + 1e-12*seconds
	if moving <= 0 {
		return 0
	}
	return max(0, int64(min(l.shardsPerSecond*moving, float64(d.demand+l.owed)))-l.owed)
}

// next is when a limit lets one shard more pass than by then.
func (d *division) next(i int, seconds float64) float64 {
	l := d.limits[i]
	return l.start + float64(d.within(i, seconds)+l.owed+1)/l.shardsPerSecond
}

func newDivision(fetch Fetch) *division {
	d := &division{fetch: fetch, network: &network{}, groups: groupNeeds(fetch), earliest: fetch.earliest(),
		senders: make(map[int]int), links: make(map[linkKey]int)}
	d.start, d.end = d.network.vertex(), d.network.vertex()
	groupsOf := make(map[int]int) // per receiver
	for _, group := range d.groups {
		groupsOf[fetch.Needs[group.needs[0]].Node]++
	}
	for g := range d.groups {
		group := &d.groups[g]
		need := fetch.Needs[group.needs[0]]
		vertex := d.network.vertex()
		group.entry = d.network.connect(d.start, vertex)
		d.demand += group.shards
		for _, node := range fetch.Holders[need.Layer] {
			if edge := d.way(vertex, linkKey{node, need.Node}, groupsOf[need.Node] > 1); edge >= 0 {
				group.senders, group.edges = append(group.senders, node), append(group.edges, edge)
			}
		}
	}
	return d
}

// way connects the vertex of a group with the sender of a link, through a vertex of the link's own where it is shared.
// It returns the edge that begins at the group, or -1 where nothing can pass.
func (d *division) way(vertex int, link linkKey, shared bool) (edge int) {
	if d.fetch.EgressBytesPerSecond[link.from] == 0 {
		return -1
	}
	sender, known := d.senders[link.from]
	if !known {
		sender = d.network.vertex()
		d.senders[link.from] = sender
		d.limit(sender, d.end, d.fetch.EgressBytesPerSecond[link.from], d.earliest[link.from])
	}
	if d.fetch.LinkBytesPerSecond == nil {
		return d.network.connect(vertex, sender)
	}
	rate, start := d.fetch.LinkBytesPerSecond[link.from][link.to], d.fetch.start(link)
	if !shared {
		return d.limit(vertex, sender, rate, start)
	}
	between, known := d.links[link]
	if !known {
		between = d.network.vertex()
		d.links[link] = between
		d.limit(between, sender, rate, start)
	}
	return d.network.connect(vertex, between)
}

// limit adds an edge through which so much can pass. Through one at no rate nothing ever can: it is left out, and -1.
func (d *division) limit(tail, head int, bytesPerSecond, start float64) (edge int) {
	if bytesPerSecond == 0 {
		return -1
	}
	edge = d.network.connect(tail, head)
	d.limits = append(d.limits, limit{edge: edge, start: start,
		shardsPerSecond: bytesPerSecond / float64(d.fetch.ShardBytes)})
	return edge
}

func groupNeeds(fetch Fetch) []group {
	var groups []group
	index := make(map[string]int)
	var key []byte
	for k, need := range fetch.Needs {
		key = key[:0]
		if fetch.LinkBytesPerSecond != nil {
			key = binary.AppendVarint(key, int64(need.Node))
		}
		for _, node := range fetch.Holders[need.Layer] {
			key = binary.AppendVarint(key, int64(node))
		}
		g, known := index[string(key)]
		if !known {
			g = len(groups)
			index[string(key)] = g
			groups = append(groups, group{})
		}
		groups[g].needs = append(groups[g].needs, k)
		groups[g].shards += fetch.shards(need.Layer)
	}
	return groups
}

// Bounds on how often settle evens out what is left, because what is evened out last matters least: with 64 nodes whose
// links all differ, 37 ms instead of 235 ms; of 2,047, where mostEdges ends it after four times, a restoration takes
// 0.5 s instead of 1.2 s.
const (
	mostTimes = 16
	mostEdges = 1_000_000 // over all times
)

// settle finds the least time in which everything flows, fixes what that takes of the limits that hold it back, and
// repeats with the other limits, which need less time, until none matters.
func (d *division) settle() error {
	seconds, err := d.owe()
	if err != nil {
		return err
	}
	for times := 0; times < mostTimes && times*len(d.network.to) < mostEdges; times++ {
		var cut []int
		cut, seconds, err = d.leastSeconds(seconds)
		if err != nil || len(cut) == 0 {
			return err
		}
		for _, i := range cut {
			d.limits[i].fixed, d.limits[i].shards = true, d.within(i, seconds)
		}
		seconds = 0
	}
	return nil
}

// owe takes a shard of each group for each of its senders out of the flow, where every holder is to send one, and returns when
// these have arrived.
func (d *division) owe() (seconds float64, err error) {
	if !d.fetch.EachHolder {
		return 0, nil
	}
	limitOf := make(map[int]int, len(d.limits)) // by edge
	for i, l := range d.limits {
		limitOf[l.edge] = i
	}
	for g := range d.groups {
		group := &d.groups[g]
		if group.shards < int64(len(group.edges)) {
			need := d.fetch.Needs[group.needs[0]]
			return 0, fmt.Errorf("layer %d for node %d: %w: %d for %d", need.Layer, need.Node, ErrTooFewShards, group.shards,
				len(group.edges))
		}
		group.owed = 1
		d.demand -= int64(len(group.edges))
		for _, edge := range group.edges {
			for at := edge; at >= 0; at = d.onward(at) {
				if i, limits := limitOf[at]; limits {
					l := &d.limits[i]
					l.owed++
					seconds = max(seconds, l.start+float64(l.owed)/l.shardsPerSecond)
				}
			}
		}
	}
	return seconds, nil
}

// onward is the edge to the end, or towards it, that comes after an edge from a group, a link or a sender: there is one, or -1.
func (d *division) onward(edge int) int {
	vertex := d.network.to[edge]
	if vertex == d.end {
		return -1
	}
	for next := d.network.first[vertex]; next >= 0; next = d.network.next[next] {
		if next%2 == 0 { // the odd ones lead back
			return next
		}
	}
	return -1
}

// leastSeconds gives the limits that are not fixed the least time, from seconds on, in which everything flows. It returns that
// time and the limits that hold it back.
func (d *division) leastSeconds(seconds float64) (cut []int, _ float64, err error) {
	for {
		missing := d.demand - d.flow(seconds)
		if missing == 0 {
			return cut, seconds, nil
		}
		if cut = d.cut(); len(cut) == 0 {
			return nil, 0, d.unserved()
		}
		seconds = d.raise(cut, missing, seconds)
	}
}

// flow pushes as many shards as pass in seconds.
func (d *division) flow(seconds float64) int64 {
	for _, group := range d.groups {
		d.network.setCapacity(group.entry, group.flowing())
		for _, edge := range group.edges {
			d.network.setCapacity(edge, unlimited) // until limits has its say, where the link is nobody else's
		}
	}
	for i := range d.limits {
		l := &d.limits[i]
		if !l.fixed {
			l.shards = d.within(i, seconds)
		}
		d.network.setCapacity(l.edge, l.shards)
	}
	return d.network.maximise(d.start, d.end)
}

// cut returns the limits in the least cut that more time would widen.
func (d *division) cut() []int {
	var cut []int
	for i, l := range d.limits {
		tail, head := d.network.to[l.edge^1], d.network.to[l.edge]
		if !l.fixed && d.network.reachable(tail) && !d.network.reachable(head) {
			cut = append(cut, i)
		}
	}
	return cut
}

// passing is how many shards the limits of a cut let pass by then.
func (d *division) passing(cut []int, seconds float64) (shards int64) {
	for _, i := range cut {
		shards += d.within(i, seconds)
	}
	return shards
}

// raise returns the least time after seconds in which the limits of the cut let the missing shards pass as well, found
// by bisection and rounded up to when the next whole shard has passed.
func (d *division) raise(cut []int, missing int64, seconds float64) float64 {
	wanted, owed := d.passing(cut, seconds)+missing, int64(0)
	rate, first, last := 0.0, math.Inf(1), 0.0
	for _, i := range cut {
		l := d.limits[i]
		rate, first, last, owed = rate+l.shardsPerSecond, min(first, l.start), max(last, l.start), owed+l.owed
	}
	early := max(seconds, (first+float64(wanted)/rate)*(1-2e-12))
	late := last + float64(wanted+owed+int64(len(cut)))/rate // no limit is behind by a shard
	if d.passing(cut, early) >= wanted {
		return early
	}
	for late-early > 1e-13*late {
		if middle := early + (late-early)/2; d.passing(cut, middle) >= wanted {
			late = middle
		} else {
			early = middle
		}
	}
	soonest := math.Inf(1)
	for _, i := range cut {
		soonest = min(soonest, d.next(i, early))
	}
	return soonest
}

func (d *division) unserved() error {
	for _, group := range d.groups {
		if d.network.flow(group.entry) < group.flowing() {
			need := d.fetch.Needs[group.needs[0]]
			return fmt.Errorf("layer %d for node %d: no holder can send it", need.Layer, need.Node)
		}
	}
	return nil
}

// cutUp lays the needs of a group end to end, lays what each sender sends along it, and cuts where either ends: few
// pieces, each a run of shards.
func (d *division) cutUp(group group, sources [][]Source) {
	sender, rest := -1, int64(0)
	for _, k := range group.needs {
		layer := d.fetch.Needs[k].Layer
		for first, all := int64(0), d.fetch.shards(layer); first < all; {
			for rest == 0 {
				sender++
				rest = group.owed + d.network.flow(group.edges[sender])
			}
			end := min(all, first+rest)
			bytes := min(end*d.fetch.ShardBytes, d.fetch.LayerBytes[layer]) - first*d.fetch.ShardBytes
			sources[k] = append(sources[k], Source{group.senders[sender], first, end, bytes})
			rest -= end - first
			first = end
		}
	}
}
