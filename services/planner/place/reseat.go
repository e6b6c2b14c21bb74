package place

import (
	"math"
	"math/bits"
	"slices"
)

// longestReseated is the most stages of a pipeline whose nodes are reseated together: 2^stages * stages^2 steps for each limit of load.
// Longer pipelines are reseated window stages at a time, from each half of a window on.
const longestReseated, window = 10, 8

// reseat gives the nodes of each pipeline of a grid, or of some stages of it, their best seats there while all others stay, until
// that helps no more. It reports whether it made the layout cheaper.
func (l *layout) reseat() (cheaper bool) {
	if l.moving != nil || !l.traffic.grid() {
		return false
	}
	r, firsts := newReseating(l)
	tries := len(firsts) * len(l.traffic.columns[0])
	for try, failed := 0, 0; failed < tries; try = (try + 1) % tries {
		failed++
		if r.improve(try/len(firsts), firsts[try%len(firsts)]) {
			failed, cheaper = 0, true
		}
	}
	return cheaper
}

// reseating is the choice of seats for the nodes of some stages of one pipeline after the other. Boundary b is before stage b, both
// counted from the first of these stages on.
type reseating struct {
	layout       *layout
	first        int
	seats, nodes []int       // of the pipeline, in the order of the stages
	load         [][]float64 // by stage, by index of node: the largest load in the column were it there
	others       []float64   // per boundary: the slowest hop of the other pipelines
	ahead        []float64   // per stage: seconds that the other pipelines alone take from there on
	outside      float64     // seconds of the boundaries that are not looked at
	unmoved      float64     // the largest load in the other columns
	reached      []float64   // by set of nodes seated, by the last of them: seconds of the hops so far
}

// newReseating also returns the first stages of those that are reseated together.
func newReseating(l *layout) (r *reseating, firsts []int) {
	all := len(l.traffic.columns)
	stages := all
	if all > longestReseated {
		stages = window
	}
	r = &reseating{
		layout: l, seats: make([]int, stages), nodes: make([]int, stages), others: make([]float64, stages+1),
		ahead: make([]float64, stages), reached: make([]float64, stages<<stages),
	}
	for range stages {
		r.load = append(r.load, make([]float64, stages))
	}
	for first := 0; first < all-stages; first += window / 2 {
		firsts = append(firsts, first)
	}
	return r, append(firsts, all-stages)
}

// take looks at some stages of a pipeline.
func (r *reseating) take(pipeline, first int) {
	l := r.layout
	r.first = first
	for stage := range r.seats {
		r.seats[stage] = l.traffic.columns[first+stage][pipeline]
		r.nodes[stage] = l.nodeOf[r.seats[stage]]
	}
	r.outside, r.unmoved = 0, 0
	for e, seconds := range l.boundary {
		if b := e + 1 - first; b < 0 || b > len(r.seats) {
			r.outside += l.traffic.edges[e].rounds * seconds
		}
	}
	for c, seconds := range l.heaviest {
		if c < first || c >= first+len(r.seats) {
			r.unmoved = max(r.unmoved, seconds)
		}
	}
	for b := range r.others {
		r.others[b] = r.slowestOther(b, pipeline)
	}
	ahead := r.seconds(len(r.seats), r.others[len(r.seats)])
	for stage := len(r.seats) - 1; stage >= 0; stage-- {
		r.ahead[stage] = ahead
		ahead += r.seconds(stage, r.others[stage])
	}
	for stage, seat := range r.seats {
		for i, node := range r.nodes {
			r.load[stage][i] = r.loadWith(seat, node)
		}
	}
}

// slowestOther is the slowest hop of the other pipelines over a boundary; zero where there is no stage before it, or behind it.
func (r *reseating) slowestOther(b, pipeline int) (slowest float64) {
	before := r.first + b - 1
	if before < 0 || before+1 >= len(r.layout.traffic.columns) {
		return 0
	}
	for other, seat := range r.layout.traffic.columns[before] {
		if other != pipeline {
			slowest = max(slowest, r.layout.hop[seat])
		}
	}
	return slowest
}

// seconds is what a boundary with such a slowest hop costs.
func (r *reseating) seconds(b int, slowest float64) float64 {
	before := r.first + b - 1
	if before < 0 || before+1 >= len(r.layout.traffic.columns) {
		return 0
	}
	return r.layout.traffic.edges[before].rounds * slowest
}

// loadWith is the largest load in a seat's column if the node sat there.
func (r *reseating) loadWith(seat, node int) float64 {
	was, is := r.layout.links.row(r.layout.nodeOf[seat]), r.layout.links.row(node)
	own, slowest := 0.0, 0.0
	for _, peer := range r.layout.traffic.peers[seat] {
		other := r.layout.nodeOf[peer.seat]
		own += peer.over(is[other])
		slowest = max(slowest, r.layout.load[peer.seat]-peer.over(was[other])+peer.over(is[other]))
	}
	return max(own, slowest)
}

// improve takes the fastest order, then the fastest one of less load than that, and so on as long as one may pay.
func (r *reseating) improve(pipeline, first int) bool {
	r.take(pipeline, first)
	before := r.layout.cost()
	best, least := before-rounding*1e3, r.unmoved
	for _, loads := range r.load {
		least = max(least, slices.Min(loads))
	}
	var order []int
	for limit := best - r.outside - r.ahead[0]; limit > least; {
		seconds, indexes := r.chain(limit, best-least-r.outside)
		if indexes == nil {
			break
		}
		limit = r.unmoved
		for stage, i := range indexes {
			limit = max(limit, r.load[stage][i])
		}
		if limit+seconds+r.outside < best {
			best, order = limit+seconds+r.outside, indexes
		}
	}
	if order == nil {
		return false
	}
	for stage, i := range order {
		r.layout.nodeOf[r.seats[stage]] = r.nodes[i]
	}
	r.layout.measure()
	return r.layout.cost() < before // and not only by rounding
}

// chain is the fastest order of the nodes, by index, with loads below a limit, by dynamic programming over sets; nil
// where none takes less than so many seconds.
func (r *reseating) chain(limit, enough float64) (seconds float64, order []int) {
	n := len(r.nodes)
	for i := range r.reached {
		r.reached[i] = math.Inf(1)
	}
	for i := range n {
		if r.load[0][i] < limit {
			r.reached[(1<<i)*n+i] = r.entered(i)
		}
	}
	for set := 1; set < 1<<n-1; set++ {
		r.extend(set, limit, enough)
	}
	set, last := 1<<n-1, 0
	seconds = math.Inf(1)
	for i, at := range r.reached[set*n:] {
		if through := at + r.left(i); through < seconds {
			seconds, last = through, i
		}
	}
	if seconds >= enough {
		return seconds, nil
	}
	order = make([]int, n)
	for stage := n - 1; ; stage-- {
		order[stage] = last
		if stage == 0 {
			return seconds, order
		}
		at := r.reached[set*n+last]
		set &^= 1 << last
		next := last
		for last = 0; set&(1<<last) == 0 || r.reached[set*n+last]+r.slowest(stage, r.nodes[last], r.nodes[next]) != at; {
			last++
		}
	}
}

// entered is the boundary before the first stage with a node behind it, and left that behind the last one.
func (r *reseating) entered(i int) float64 {
	if r.first == 0 {
		return 0
	}
	return r.slowest(0, r.layout.nodeOf[r.layout.traffic.prev[r.seats[0]]], r.nodes[i])
}

func (r *reseating) left(i int) float64 {
	last := len(r.seats) - 1
	next := r.layout.traffic.next[r.seats[last]]
	if next < 0 {
		return 0
	}
	return r.slowest(last+1, r.nodes[i], r.layout.nodeOf[next])
}

func (r *reseating) extend(set int, limit, enough float64) {
	n, stage := len(r.nodes), bits.OnesCount(uint(set))
	for last := range n {
		at := r.reached[set*n+last]
		if at+r.ahead[stage-1] >= enough {
			continue
		}
		for next := range n {
			if set&(1<<next) != 0 || r.load[stage][next] >= limit {
				continue
			}
			to := (set|1<<next)*n + next
			r.reached[to] = min(r.reached[to], at+r.slowest(stage, r.nodes[last], r.nodes[next]))
		}
	}
}

// slowest is what a boundary costs if two nodes sat beside it in the pipeline.
func (r *reseating) slowest(b, left, right int) float64 {
	return r.seconds(b, max(r.others[b], r.layout.hopOver(r.layout.links.row(left)[right])))
}
