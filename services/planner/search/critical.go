package search

import "github.com/reknit/reknit/services/planner/estimate"

// critical is a path through the schedule on which some split took too long. It is a path of every other split into as many
// stages, for as many micro-batches, which therefore takes no less: what one split was evaluated for excludes most others
// before they are (a cut, as of Benders). Its tables are of the split search under way.
type critical struct {
	estimate.Path
	rest  []float64 // by stage and its first layer: what the path takes there and in all stages after it, at least
	taken []float64 // by stage: what it takes in the stages before it, as they are
}

// paths are the critical ones that are known. They are true of all searchers for a problem.
type paths struct {
	known  map[[2]int][]estimate.Path // by stages and micro-batches; looked up, never ranged over
	stages int                        // of all of them together
	tables []*critical                // scratch of the split search under way, and of those before
	active []*critical                // of these, those that are looked at for each cut, the oldest first
}

const (
	mostPaths = 64 // that are looked at for each cut, the newest
	// mostTables bounds the numbers in the tables of a split search, to 32 MiB, but for a single one: 512 stages of 512 layers
	// look at 15 paths. Those of before are kept: all splits of 512 layers, one after the other, leave 76 MiB (measured).
	mostTables = 1 << 22
	// mostStages bounds those of all that are known, to 16 MiB. With 1,000 nodes and 512 unequal layers 1,321 paths were known.
	mostStages = 1 << 20
)

// keep makes a path known. All others are forgotten if there are too many: they only save time.
func (p *paths) keep(key [2]int, path estimate.Path, most int) {
	if p.stages += key[0]; p.stages > mostStages || p.known == nil {
		p.known, p.stages = map[[2]int][]estimate.Path{}, key[0]
	}
	all := append(p.known[key], path)
	dropped := max(0, len(all)-most)
	p.known[key] = all[dropped:]
	p.stages -= dropped * key[0]
}

// activate returns tables for a path to be looked at, those of the oldest where there are too many.
func (p *paths) activate(path estimate.Path, most int) *critical {
	last := len(p.active)
	switch {
	case last == most:
		last--
		oldest := p.active[0]
		copy(p.active, p.active[1:])
		p.active[last] = oldest
	case last == len(p.tables):
		p.tables = append(p.tables, &critical{})
		fallthrough
	default:
		p.active = p.tables[:last+1]
	}
	p.active[last].Path = path
	return p.active[last]
}

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
	if cap(list) < length {
		return make([]float64, length)
	}
	return list[:length]
}

// excluded reports whether a known path takes longer than the limit, however the layers are split.
func (d *descent) excluded() bool {
	d.paths.active = d.paths.tables[:0]
	for _, path := range d.paths.known[d.key()] {
		if c := d.activate(path); *c.restAt(0, 0) > d.limit {
			return true
		}
	}
	return false
}

// activate has a path be looked at for each cut from now on.
func (d *descent) activate(path estimate.Path) *critical {
	c := d.paths.activate(path, d.mostActive())
	d.measure(c, d.stages)
	return c
}

func (d *descent) mostActive() int {
	return min(mostPaths, max(1, mostTables/((d.stages+1)*(len(d.layers)+1))))
}

func (d *descent) key() [2]int { return [2]int{d.stages, d.microBatches} }

// allows reports whether no known path is too long where stage s ends before layer end.
func (d *descent) allows(s, end int) bool {
	for _, c := range d.paths.active {
		c.taken[s+1] = c.taken[s] + d.secondsOn(c, s, d.starts[s], end)
		if c.taken[s+1]+*c.restAt(s+1, end) > d.limit {
			return false
		}
	}
	return true
}

// learn keeps the critical path of the split, and finds the first of its stages with which all is lost.
func (d *descent) learn() {
	c := d.activate(d.pipeline(d.starts, d.microBatches).Critical(&d.scratch.trail))
	d.lost = d.stages
	for s := range d.stages {
		c.taken[s+1] = c.taken[s] + d.secondsOn(c, s, d.starts[s], d.starts[s+1])
		if *c.restAt(s, d.starts[s])+c.taken[s] > d.limit {
			d.lost = min(d.lost, s)
		}
	}
	d.paths.keep(d.key(), c.Path, d.mostActive())
}
