package place

import (
	"math"
	"math/bits"
	"slices"
)

// longestReseated is the most stages of a pipeline whose nodes are reseated: 2^stages * stages^2 steps for each limit
// of load.
const longestReseated = 10

// reseat gives the nodes of each pipeline of a grid their best seats in it while all others stay, until that helps no
// more. It reports whether it made the layout cheaper.
func (l *layout) reseat() (cheaper bool) {
	stages := len(l.traffic.columns)
	if stages > longestReseated || l.moving != nil || !l.traffic.grid() {
		return false
	}
	r := newReseating(l)
	pipelines := len(l.traffic.columns[0])
	for pipeline, failed := 0, 0; failed < pipelines; pipeline = (pipeline + 1) % pipelines {
		failed++
		if r.improve(pipeline) {
			failed, cheaper = 0, true
		}
	}
	return cheaper
}

// reseating is the choice of seats for the nodes of one pipeline after the other.
type reseating struct {
	layout       *layout
	seats, nodes []int       // of the pipeline, in the order of the stages
	load         [][]float64 // by stage, by index of node: the largest load in the column were it there
	others       []float64   // per boundary: the slowest hop of the other pipelines
	ahead        []float64   // per stage: seconds that the other pipelines alone take from there on
	reached      []float64   // by set of nodes seated, by the last of them: seconds of the hops so far
}

func newReseating(l *layout) *reseating {
	stages := len(l.traffic.columns)
	r := &reseating{
		layout: l, seats: make([]int, stages), nodes: make([]int, stages),
		others: make([]float64, len(l.traffic.edges)),
		ahead:  make([]float64, stages), reached: make([]float64, stages<<stages),
	}
	for range stages {
		r.load = append(r.load, make([]float64, stages))
	}
	return r
}

// take looks at a pipeline.
func (r *reseating) take(pipeline int) {
	for stage, column := range r.layout.traffic.columns {
		r.seats[stage], r.nodes[stage] = column[pipeline], r.layout.nodeOf[column[pipeline]]
	}
	for boundary := len(r.others) - 1; boundary >= 0; boundary-- {
		slowest := 0.0
		for _, seat := range r.layout.traffic.columns[boundary] {
			if seat != r.seats[boundary] {
				slowest = max(slowest, r.layout.hop[seat])
			}
		}
		r.others[boundary] = slowest
		r.ahead[boundary] = r.ahead[boundary+1] + r.layout.traffic.edges[boundary].rounds*slowest
	}
	for stage, seat := range r.seats {
		for i, node := range r.nodes {
			r.load[stage][i] = r.loadWith(seat, node)
		}
	}
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
func (r *reseating) improve(pipeline int) bool {
	r.take(pipeline)
	before := r.layout.cost()
	best, least := before-rounding*1e3, 0.0
	for _, loads := range r.load {
		least = max(least, slices.Min(loads))
	}
	var order []int
	for limit := best - r.ahead[0]; limit > least; {
		seconds, indexes := r.chain(limit, best-least)
		if indexes == nil {
			break
		}
		limit = 0
		for stage, i := range indexes {
			limit = max(limit, r.load[stage][i])
		}
		if limit+seconds < best {
			best, order = limit+seconds, indexes
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
			r.reached[(1<<i)*n+i] = 0
		}
	}
	for set := 1; set < 1<<n-1; set++ {
		r.extend(set, limit, enough)
	}
	set := 1<<n - 1
	all := r.reached[set*n:]
	seconds = slices.Min(all)
	if seconds >= enough {
		return seconds, nil
	}
	last := slices.Index(all, seconds)
	order = make([]int, n)
	for stage := n - 1; ; stage-- {
		order[stage] = last
		if stage == 0 {
			return seconds, order
		}
		at := r.reached[set*n+last]
		set &^= 1 << last
		next := last
		for last = 0; set&(1<<last) == 0 || r.reached[set*n+last]+r.slowest(stage-1, last, next) != at; {
			last++
		}
	}
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
			r.reached[to] = min(r.reached[to], at+r.slowest(stage-1, last, next))
		}
	}
}

// slowest is what a boundary costs if two nodes of the pipeline sat beside it.
func (r *reseating) slowest(boundary, left, right int) float64 {
	hop := max(r.others[boundary], r.layout.hopOver(r.layout.links.row(r.nodes[left])[r.nodes[right]]))
	return r.layout.traffic.edges[boundary].rounds * hop
}
