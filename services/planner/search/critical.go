package search

import "github.com/reknit/reknit/services/planner/estimate"

// critical is a path through the schedule on which some split took too long. It is a path of every other split into as many
// stages, for as many micro-batches, which therefore takes no less: what one split was evaluated for excludes most others
// before they are (a cut, as of Benders).
type critical struct {
	estimate.Path
	rest  []float64 // by stage and its first layer: what the path takes there and in all stages after it, at least
	taken []float64 // by stage: what it takes in the stages before it, as they are
}

// paths are the critical ones that are known, by stages and micro-batches; looked up, never ranged over. They are true of
// all searchers for a problem.
type paths map[[2]int][]*critical

// mostPaths is how many of them are kept, the newest: each is looked at for each cut.
const mostPaths = 64

// secondsOn is what a path takes in a stage with layers [a, end).
func (m *model) secondsOn(c *critical, s, a, end int) float64 {
	forward := m.forward[end] - m.forward[a]
	return c.Forwards[s]*forward + c.Backwards[s]*(m.total[end]-m.total[a]-forward)
}

func (c *critical) restAt(s, a int) *float64 { return &c.rest[s*(len(c.rest)/len(c.taken))+a] }

// measure fills rest, of splits that reach has not excluded. O(stages * layers * layers of a stage).
func (m *model) measure(c *critical, stages int) {
	n := len(m.layers)
	least, most := m.sizes(stages)
	c.rest, c.taken = sized(c.rest, (stages+1)*(n+1)), sized(c.taken, stages+1)
	for i := range c.rest {
		c.rest[i] = never
	}
	*c.restAt(stages, n) = c.Transfers * m.transferSeconds
	for s := stages - 1; s >= 0; s-- {
		for a := max(s*least, n-(stages-s)*most); a <= min(s*most, n-(stages-s)*least); a++ {
			best := never
			for end := a + least; end <= m.end(s, a); end++ {
				best = min(best, m.secondsOn(c, s, a, end)+*c.restAt(s+1, end))
			}
			*c.restAt(s, a) = best
		}
	}
}

func sized(list []float64, length int) []float64 {
	if list == nil {
		return make([]float64, length)
	}
	return list
}

// excluded reports whether a known path takes longer than the limit, however the layers are split.
func (d *descent) excluded() bool {
	for _, c := range d.paths[d.key()] {
		d.measure(c, d.stages)
		if *c.restAt(0, 0) > d.limit {
			return true
		}
	}
	return false
}

func (d *descent) key() [2]int { return [2]int{d.stages, d.microBatches} }

// allows reports whether no known path is too long where stage s ends before layer end.
func (d *descent) allows(s, end int) bool {
	for _, c := range d.paths[d.key()] {
		c.taken[s+1] = c.taken[s] + d.secondsOn(c, s, d.starts[s], end)
		if c.taken[s+1]+*c.restAt(s+1, end) > d.limit {
			return false
		}
	}
	return true
}

// learn keeps the critical path of the split, and finds the first of its stages with which all is lost.
func (d *descent) learn() {
	c := &critical{Path: d.pipeline(d.starts, d.microBatches).Critical(&d.scratch.trail)}
	d.measure(c, d.stages)
	d.lost = d.stages
	for s := range d.stages {
		c.taken[s+1] = c.taken[s] + d.secondsOn(c, s, d.starts[s], d.starts[s+1])
		if *c.restAt(s, d.starts[s])+c.taken[s] > d.limit {
			d.lost = min(d.lost, s)
		}
	}
	all := append(d.paths[d.key()], c)
	d.paths[d.key()] = all[max(0, len(all)-mostPaths):]
}
