package search

import (
	"math"
	"slices"
)

// oracle answers, for pipelines of each length, how many micro-batches fit into a time. It remembers what it has
// proven about each length and number of micro-batches, and proves no more than is asked.
type oracle struct {
	*model
	microBatches int   // no pipeline is asked for more
	inMemory     []int // by length: the most micro-batches for which any split fits in memory
	cells        []map[int]*cell
	last         [][]int                 // by length: the last split found, often good for a micro-batch more or less
	proven       [][]fact                // by length
	known        map[float64]*capacities // by limit
	byFloor      map[float64][]int       // by limit: floorCapacities
	shortest     map[int]float64         // by micro-batches: a lower bound on the time of any pipeline
	freer        *oracle                 // for pipelines whose stages may have more gradients; nil: none
	roughly      bool                    // look no further than the last split found
	gaveUp       bool                    // some split search ran into its effort limit
}

// fact: a pipeline takes longer than above for so many micro-batches or more.
type fact struct {
	microBatches int
	above        float64
}

// cell is what is known of pipelines of one length with one number of micro-batches.
type cell struct {
	above     float64 // no split takes this long or less
	atMost    float64 // starts takes this long
	abandoned float64 // a search for this limit gave up
	starts    []int
}

func newOracle(m *model, longest, microBatches int) *oracle {
	o := &oracle{
		model: m, microBatches: microBatches,
		inMemory: make([]int, longest+1), cells: make([]map[int]*cell, longest+1), last: make([][]int, longest+1),
		proven: make([][]fact, longest+1), known: map[float64]*capacities{}, byFloor: map[float64][]int{}, shortest: map[int]float64{},
	}
	for length := 1; length <= longest; length++ {
		o.cells[length] = map[int]*cell{}
		o.inMemory[length] = o.mostInMemory(length)
	}
	return o
}

// mostInMemory: memory grows with the micro-batches in flight, so not beyond as many as there are stages.
func (o *oracle) mostInMemory(length int) int {
	if o.leastFullest(length) > o.mostGradient {
		return 0
	}
	most := lastBelow(min(length, o.microBatches), func(b int) bool { return o.reach(o.shape(length, b), never) })
	if most == length {
		return o.microBatches
	}
	return most
}

// largestInt is the largest value in [low, high] that holds, where low holds and so does everything below one that
// does.
func largestInt(low, high int, holds func(int) bool) int {
	for low < high {
		middle := (low + high + 1) / 2
		if holds(middle) {
			low = middle
		} else {
			high = middle - 1
		}
	}
	return low
}

// search has the oracle answer roughly from now on, or exactly. A capacity that was settled roughly is not exact.
func (o *oracle) search(roughly bool) {
	if o.roughly != roughly {
		clear(o.known)
	}
	o.roughly = roughly
}

func (o *oracle) cell(length, microBatches int) *cell {
	c := o.cells[length][microBatches]
	if c == nil {
		c = &cell{above: -1, atMost: never, abandoned: -1}
		o.cells[length][microBatches] = c
	}
	return c
}

// within reports whether a pipeline takes so many micro-batches in at most limit seconds.
func (o *oracle) within(length, microBatches int, limit float64) answer {
	c := o.cell(length, microBatches)
	switch {
	case c.atMost <= limit:
		return found
	case c.above >= limit:
		return impossible
	case c.abandoned >= limit:
		return gaveUp
	case o.knownWithout(c, length, microBatches, limit):
		if c.atMost <= limit {
			return found
		}
		return impossible
	}
	if starts := o.last[length]; starts != nil && !same(starts, c.starts) && o.splitFits(starts, microBatches) {
		if seconds := o.makespan(starts, microBatches); seconds < c.atMost {
			c.atMost, c.starts = seconds, starts
		}
		if c.atMost <= limit {
			return found
		}
	}
	if o.roughly && c.starts != nil {
		return gaveUp
	}
	effort := roughEffort
	if !o.roughly {
		effort = max(1, o.effort>>(*o.inVain/halved))
	}
	starts, seconds, result := o.split(length, microBatches, limit, effort)
	switch result {
	case found:
		c.atMost, c.starts, o.last[length] = seconds, starts, starts
	case impossible:
		c.above = limit
		o.proven[length] = append(o.proven[length], fact{microBatches, limit})
	case gaveUp:
		if !o.roughly {
			c.abandoned, o.gaveUp = limit, true
			*o.inVain++
		}
	}
	return result
}

// knownWithout looks at what is known of a pipeline whose stages may have more gradients.
func (o *oracle) knownWithout(c *cell, length, microBatches int, limit float64) bool {
	if o.freer == nil {
		return false
	}
	known := o.freer.cells[length][microBatches]
	if known == nil {
		return false
	}
	c.above = max(c.above, known.above)
	if known.atMost < c.atMost && o.splitFits(known.starts, microBatches) {
		c.atMost, c.starts, o.last[length] = known.atMost, known.starts, known.starts
	}
	return c.atMost <= limit || c.above >= limit
}

func (o *oracle) splitFits(starts []int, microBatches int) bool {
	for s := range len(starts) - 1 {
		if !o.fits(s, len(starts)-1, microBatches, starts[s], starts[s+1]) {
			return false
		}
	}
	return true
}

// capacities is, for one time limit, the most micro-batches a pipeline of each length takes within it: exact where
// settled, and an upper bound elsewhere. Exact capacities are dear, and most lengths never matter.
type capacities struct {
	limit   float64
	most    []int // by length
	settled []bool
	missed  []int // how often a length took less than it might
}

// capacities of all lengths from least on, by the floor of their time only, or as far as they were settled before.
func (o *oracle) capacities(least int, limit float64) *capacities {
	if c := o.known[limit]; c != nil {
		return c
	}
	c := &capacities{limit: limit, most: slices.Clone(o.floorCapacities(least, limit)), settled: make([]bool, len(o.inMemory)),
		missed: make([]int, len(o.inMemory))}
	o.known[limit] = c
	return c
}

// floorCapacities is what floorCapacity says of all lengths from least on.
func (o *oracle) floorCapacities(least int, limit float64) []int {
	most := o.byFloor[limit]
	if most == nil {
		most = make([]int, len(o.inMemory))
		for length := least; length < len(most); length++ {
			most[length] = o.floorCapacity(length, limit)
		}
		o.byFloor[limit] = most
	}
	return most
}

// mostMisses is how often a length is lowered by one before its capacity is searched: each time, the lengths are mixed anew.
const mostMisses = 3

// settle reports whether a length takes as many micro-batches as it might, and lowers what it might where not: by one, and to
// what it takes where it missed often.
func (o *oracle) settle(c *capacities, length int) bool {
	most := c.most[length]
	if c.settled[length] || most == 0 || o.within(length, most, c.limit) == found {
		c.settled[length] = true
		return true
	}
	c.most[length]--
	if c.missed[length]++; c.missed[length] == mostMisses {
		c.most[length] = lastBelow(c.most[length], func(b int) bool { return o.within(length, b, c.limit) == found })
		c.settled[length] = true
	}
	return false
}

// floorCapacity is the capacity of a length if its time were the floor. The work alone bounds it already.
func (o *oracle) floorCapacity(length int, limit float64) int {
	most := o.inMemory[length]
	if work := o.total[len(o.layers)] / float64(length); limit < work*float64(most) {
		most = int(limit/work) + 1
	}
	return lastBelow(min(most, o.inMemory[length]), func(b int) bool { return o.floor(length, b) <= limit })
}

// lastBelow is the largest value from 1 to high that holds, given that everything below one that holds does too, or 0.
// It looks near high first.
func lastBelow(high int, holds func(int) bool) int {
	for step := 1; high > 0; step *= 2 {
		if holds(high) {
			return high
		}
		if low := high - step; low <= 0 || holds(low) {
			return largestInt(max(0, low), high-1, holds)
		}
		high -= step
	}
	return 0
}

// descend finds the smallest value that attempt can reach, or one at most tolerance (a share of it) above, given that
// none is below low. Best is a value that was reached, or never, where a limit large enough succeeds. attempt(limit)
// returns a value of at most limit, or false where there is none.
func descend(low, best, tolerance float64, attempt func(limit float64) (float64, bool)) float64 {
	if best == never {
		value, ok := attempt(low)
		if ok {
			return value
		}
		for step := max(low, smallest) / 64; !ok; step *= 2 {
			limit := low + step
			if value, ok = attempt(limit); !ok {
				low = limit
			}
		}
		best = value
	}
	for best-low > tolerance*best {
		if tolerance == 0 {
			value, ok := attempt(before(best))
			if !ok {
				return best
			}
			best = value
		}
		middle := low + (best-low)/2
		if middle <= low || middle >= best {
			return best
		}
		if value, ok := attempt(middle); ok {
			best = value
		} else {
			low = middle
		}
	}
	return best
}

const smallest = 1e-9 // where times start at zero, the first step of descend

func before(value float64) float64 { return math.Nextafter(value, math.Inf(-1)) }

func after(value float64) float64 { return math.Nextafter(value, never) }

// same reports whether two splits of one length are one slice.
func same(a, b []int) bool { return len(b) > 0 && &a[0] == &b[0] }
