package place

import (
	"math"
	"math/bits"
	"slices"
)

// longestReseated is the most stages of a pipeline whose nodes are reseated: 2^stages * stages^2 steps for each limit of load.
const longestReseated = 10

// reseat gives the nodes of each pipeline of a grid their best seats in it while all others stay, until that helps no
// more. It reports whether it made the layout cheaper.
func (l *layout) reseat() (cheaper bool) {
	stages := len(l.columns)
	if stages > longestReseated || l.moving != nil || !l.grid() {
		return false
	}
	pipelines := len(l.columns[0])
	for pipeline, failed := 0, 0; failed < pipelines; pipeline = (pipeline + 1) % pipelines {
		failed++
		if newReseating(l, pipeline).improve() {
			failed, cheaper = 0, true
		}
	}
	return cheaper
}

// reseating is the choice of seats for the nodes of one pipeline.
type reseating struct {
	*layout
	seats, nodes []int       // of the pipeline, in the order of the stages
	load         [][]float64 // by stage, by index of node: the largest load in the column were it there
	others       []float64   // per boundary: the slowest hop of the other pipelines
	ahead        []float64   // per stage: seconds that the other pipelines alone take from there on
	reached      []float64   // by set of nodes seated, by the last of them: seconds of the hops so far
}

func newReseating(l *layout, pipeline int) *reseating {
	r := &reseating{layout: l}
	for stage, column := range l.columns {
		r.seats = append(r.seats, column[pipeline])
		r.nodes = append(r.nodes, l.nodeOf[column[pipeline]])
		if stage+1 < len(l.columns) {
			slowest := 0.0
			for _, seat := range column {
				if seat != column[pipeline] {
					slowest = max(slowest, l.hop[seat])
				}
			}
			r.others = append(r.others, slowest)
		}
	}
	for stage := range r.seats {
		r.load = append(r.load, make([]float64, len(r.nodes)))
		for i, node := range r.nodes {
			r.load[stage][i] = r.loadWith(r.seats[stage], node)
		}
	}
	r.ahead = make([]float64, len(l.columns))
	for boundary := len(r.others) - 1; boundary >= 0; boundary-- {
		r.ahead[boundary] = r.ahead[boundary+1] + l.edges[boundary].rounds*r.others[boundary]
	}
	r.reached = make([]float64, len(r.nodes)<<len(r.nodes))
	return r
}

// loadWith is the largest load in a seat's column if the node sat there.
func (r *reseating) loadWith(seat, node int) float64 {
	was, is := r.links.row(r.nodeOf[seat]), r.links.row(node)
	own, slowest := 0.0, 0.0
	for _, peer := range r.peers[seat] {
		other := r.nodeOf[peer.seat]
		own += peer.over(is[other])
		slowest = max(slowest, r.layout.load[peer.seat]-peer.over(was[other])+peer.over(is[other]))
	}
	return max(own, slowest)
}

// improve tries every limit of load, from the least possible on, as long as one may pay.
func (r *reseating) improve() bool {
	best := r.cost() - rounding*1e3
	least := 0.0
	var limits []float64
	for _, loads := range r.load {
		least = max(least, slices.Min(loads))
		limits = append(limits, loads...)
	}
	slices.Sort(limits)
	fastest, order := r.chain(math.Inf(1), best-least)
	order = nil
	for _, limit := range slices.Compact(limits) {
		if limit < least {
			continue
		}
		if limit+fastest >= best {
			break
		}
		if seconds, nodes := r.chain(limit, best-limit); limit+seconds < best {
			best, order = limit+seconds, nodes
		}
	}
	if order == nil {
		return false
	}
	before := r.cost()
	for stage, node := range order {
		r.nodeOf[r.seats[stage]] = node
	}
	r.measure()
	return r.cost() < before // and not only by rounding
}

// chain is the fastest order of the nodes under a limit of load, by dynamic programming over sets; infinite where none
// takes less than so many seconds.
func (r *reseating) chain(limit, enough float64) (seconds float64, nodes []int) {
	n := len(r.nodes)
	for i := range r.reached {
		r.reached[i] = math.Inf(1)
	}
	for i := range n {
		if r.load[0][i] <= limit {
			r.reached[(1<<i)*n+i] = 0
		}
	}
	for set := 1; set < 1<<n-1; set++ {
		r.extend(set, limit, enough)
	}
	set := 1<<n - 1
	all := r.reached[set*n:]
	seconds = slices.Min(all)
	if math.IsInf(seconds, 1) {
		return seconds, nil
	}
	last := slices.Index(all, seconds)
	nodes = make([]int, n)
	for stage := n - 1; ; stage-- {
		nodes[stage] = r.nodes[last]
		if stage == 0 {
			return seconds, nodes
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
			if set&(1<<next) != 0 || r.load[stage][next] > limit {
				continue
			}
			to := (set|1<<next)*n + next
			r.reached[to] = min(r.reached[to], at+r.slowest(stage-1, last, next))
		}
	}
}

// slowest is what a boundary costs if two nodes of the pipeline sat beside it.
func (r *reseating) slowest(boundary, left, right int) float64 {
	hop := max(r.others[boundary], r.hopOver(r.links.row(r.nodes[left])[r.nodes[right]]))
	return r.edges[boundary].rounds * hop
}
