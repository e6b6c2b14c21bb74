package search

import (
	"math"
	"slices"
	"sort"

	"github.com/reknit/reknit/services/planner/estimate"
)

// model is a problem's layers with their running sums: index i holds the sum of the layers before i.
type model struct {
	layers                      []estimate.Layer
	forward, total              []float64 // total: forward and backward
	static, activation          []int64
	gradient                    []int64
	mostGradient                int64             // bytes of a stage
	leastBytes                  map[int]int64     // by stages; looked up, never ranged over
	floors                      []map[int]float64 // by stages less one, by micro-batches; looked up, never ranged over
	largestLayer                float64
	shortest                    []float64 // by number of layers: the run of so many that takes least
	forwardShare, backwardShare float64   // the largest share a layer's forward, or backward, has of its time
	transferSeconds             float64
	memoryBytes                 int64
	family                      Family
	effort                      int
	paths                       *paths
	inVain                      *int // how many split searches of the problem ran into their effort limit
	scratch                     scratch
}

// scratch is what one split search needs, kept between searches.
type scratch struct {
	shape             shape
	furthest, next    []int
	forward, backward []float64
	transfer, clock   []float64
	starts            []int
	trail             estimate.Trail
}

func newModel(p Problem, mostGradient int64, paths *paths, inVain *int) *model {
	layers, transferSeconds := onGrid(p)
	m := &model{
		layers: layers, transferSeconds: transferSeconds, memoryBytes: p.NodeMemoryBytes, family: p.Splits,
		effort:       effort(p.PipelineLength, p.DataParallel),
		mostGradient: mostGradient, leastBytes: map[int]int64{}, floors: make([]map[int]float64, len(layers)),
		paths: paths, inVain: inVain,
	}
	n := len(layers)
	for i := range m.floors {
		m.floors[i] = map[int]float64{}
	}
	m.forward, m.total = make([]float64, n+1), make([]float64, n+1)
	m.static, m.activation, m.gradient = make([]int64, n+1), make([]int64, n+1), make([]int64, n+1)
	for i, bytes := range p.AllReduce.GradientBytes {
		m.gradient[i+1] = m.gradient[i] + bytes
	}
	for i, layer := range layers {
		both := layer.ForwardSeconds + layer.BackwardSeconds
		m.forward[i+1], m.total[i+1] = m.forward[i]+layer.ForwardSeconds, m.total[i]+both
		m.static[i+1], m.activation[i+1] = m.static[i]+layer.StaticBytes, m.activation[i]+layer.ActivationBytes
		m.largestLayer = max(m.largestLayer, both)
		if both > 0 {
			m.forwardShare = max(m.forwardShare, layer.ForwardSeconds/both)
			m.backwardShare = max(m.backwardShare, layer.BackwardSeconds/both)
		}
	}
	m.shortest = shortestRuns(m.total)
	transfers := make([]float64, n)
	for i := range transfers {
		transfers[i] = transferSeconds
	}
	m.scratch = scratch{
		furthest: make([]int, (n+1)*(n+1)), next: make([]int, (n+2)*(n+2)),
		forward: make([]float64, n), backward: make([]float64, n), transfer: transfers, clock: make([]float64, 4*n),
		starts: make([]int, n+1),
	}
	return m
}

// shortestRuns is the least that any run of so many layers takes, of which total is the running sum; never beyond all.
func shortestRuns(total []float64) []float64 {
	shortest := slices.Repeat([]float64{never}, len(total)+1)
	for first := range total {
		for end := first; end < len(total); end++ {
			shortest[end-first] = min(shortest[end-first], total[end]-total[first])
		}
	}
	return shortest
}

// onGrid rounds all times to multiples of a power of two so small that it does not matter (2^-52 of a step in which
// nothing overlaps), and so large that every sum of them is exact. Bounds then never pass what they bound, the order of
// additions never matters, and steady states repeat exactly. Whole numbers stay as they are.
func onGrid(p Problem) (layers []estimate.Layer, transferSeconds float64) {
	total := 0.0
	for _, layer := range p.Layers {
		total += layer.ForwardSeconds + layer.BackwardSeconds
	}
	step := (total + 2*p.TransferSeconds*float64(len(p.Layers))) * float64(p.MicroBatches+len(p.Layers))
	_, exponent := math.Frexp(step)
	grid := math.Ldexp(1, exponent-52)
	round := func(seconds float64) float64 { return math.Round(seconds/grid) * grid }
	layers = slices.Clone(p.Layers)
	for i := range layers {
		layers[i].ForwardSeconds, layers[i].BackwardSeconds = round(layers[i].ForwardSeconds),
			round(layers[i].BackwardSeconds)
	}
	return layers, round(p.TransferSeconds)
}

// sizes is how many layers a stage may have.
func (m *model) sizes(stages int) (least, most int) {
	if m.family == Even {
		return len(m.layers) / stages, (len(m.layers) + stages - 1) / stages
	}
	return 1, len(m.layers) - stages + 1
}

func (m *model) fits(stage, stages, microBatches, first, end int) bool {
	inFlight := int64(estimate.InFlight(stage, stages, microBatches))
	return m.gradient[end]-m.gradient[first] <= m.mostGradient &&
		m.static[end]-m.static[first]+inFlight*(m.activation[end]-m.activation[first]) <= m.memoryBytes
}

// makespan of a split, given by the first layer of each stage and the number of layers at the end.
func (m *model) makespan(starts []int, microBatches int) float64 {
	return m.pipeline(starts, microBatches).Makespan(m.scratch.clock)
}

func (m *model) pipeline(starts []int, microBatches int) estimate.Pipeline {
	stages := len(starts) - 1
	p := estimate.Pipeline{
		MicroBatches: microBatches, ForwardSeconds: m.scratch.forward[:stages],
		BackwardSeconds: m.scratch.backward[:stages],
	}
	if m.transferSeconds > 0 {
		p.ForwardTransferSeconds, p.BackwardTransferSeconds = m.scratch.transfer[:stages-1],
			m.scratch.transfer[:stages-1]
	}
	for s := range stages {
		p.ForwardSeconds[s] = m.forward[starts[s+1]] - m.forward[starts[s]]
		p.BackwardSeconds[s] = m.total[starts[s+1]] - m.total[starts[s]] - p.ForwardSeconds[s]
	}
	return p
}

// reach fills the tables of what can follow under a time limit, looking at each stage alone: furthest[s][a] is the
// largest end of stage s starting at layer a, next[s][a] the first layer at or after a from which stages s.. can hold
// all the rest. It reports whether they can from layer 0. O(stages * layers).
func (m *model) reach(sh *shape, limit float64) bool {
	n, stages := len(m.layers), sh.stages
	least, most := m.sizes(stages)
	m.next(stages, n+1, n+1)
	for a := n; a >= 0; a-- {
		m.next(stages, a, n)
	}
	for s := stages - 1; s >= 0; s-- {
		low, high := max(s*least, n-(stages-s)*most), min(s*most, n-(stages-s)*least)
		m.fillFurthest(sh, s, low, high, most, limit)
		follow := n + 1
		for a := n + 1; a >= 0; a-- {
			if a >= low && a <= high && m.follower(s+1, a+least) <= m.end(s, a) {
				follow = a
			}
			m.next(s, a, follow)
		}
	}
	return m.follower(0, 0) == 0
}

func (m *model) next(s, a, value int)  { m.scratch.next[s*(len(m.layers)+2)+a] = value }
func (m *model) follower(s, a int) int { return m.scratch.next[s*(len(m.layers)+2)+a] }
func (m *model) end(s, a int) int      { return m.scratch.furthest[s*(len(m.layers)+1)+a] }
func (m *model) setEnd(s, a, end int)  { m.scratch.furthest[s*(len(m.layers)+1)+a] = end }

// fillFurthest moves a window over the layers: dropping its first layer never shortens what fits behind.
func (m *model) fillFurthest(sh *shape, s, low, high, most int, limit float64) {
	end := low
	for a := low; a <= high; a++ {
		end = max(end, a)
		for end < min(a+most, len(m.layers)) && m.fits(s, sh.stages, sh.microBatches, a, end+1) &&
			(limit == never || m.alone(sh, s, a, end+1) <= limit) {
			end++
		}
		m.setEnd(s, a, end)
	}
}

// alone is the bound of stage s holding layers [a, end), whatever the other stages hold.
func (m *model) alone(sh *shape, s, a, end int) float64 {
	total := m.total[end] - m.total[a]
	forward := m.forward[end] - m.forward[a]
	prefix := m.total[a] + sh.edge*float64(s)
	rest := m.total[len(m.layers)] - m.total[a] + sh.edge*float64(sh.stages-1-s)
	return max(sh.bound(s, s, prefix, total, forward, total-forward),
		sh.bound(s, sh.stages-1, prefix, rest, forward, total-forward))
}

// together is the largest bound of the windows that end with stage t, which ends before layer end.
func (m *model) together(sh *shape, starts []int, t, end int) float64 {
	least := 0.0
	for s := t - 1; s >= 0; s-- {
		a, b := starts[s], starts[s+1]
		forward := m.forward[b] - m.forward[a]
		backward := m.total[b] - m.total[a] - forward
		window := m.total[end] - m.total[a] + sh.edge*float64(t-s)
		least = max(least, sh.bound(s, t, m.total[a]+sh.edge*float64(s), window, forward, backward))
	}
	return least
}

// answer of a split search: found, or proven impossible, or given up at the effort limit.
type answer int

const (
	impossible answer = iota
	found
	gaveUp
)

// effort is how many splits a search evaluates, and a hundredth of how many cuts it looks at, before it gives up. Each search may take
// longer if the problem leaves few lengths and degrees to choose from. Twelve of 1,203 searches for seven problems (31 to 2,048 nodes, 64
// to 16,384 micro-batches, 32 unequal layers) came to the limit. None of them mattered for the answer, which was proven best in all seven.
// One search of three came to the limit if the all-reduce counts (100 to 2,048 nodes, 32 equal layers). These had taken three quarters of
// the time: see halved.
func effort(lengths, degrees Limits) int {
	return 200 * max(1, 100/((lengths.Most-lengths.Least+1)*(degrees.Most-degrees.Least+1)))
}

// halved is how many split searches of one problem may run into their effort limit before it is half as high for the others,
// and so on.
const halved = 10

// roughEffort is the same for a search that is to be rough.
const roughEffort = 8

// split looks for a split of the layers whose makespan is at most limit and whose stages fit in memory. Depth first
// over the cuts, cut off by the bounds of stages and windows; a full split is evaluated exactly.
func (m *model) split(stages, microBatches int, limit float64, effort int) ([]int, float64, answer) {
	sh := m.shape(stages, microBatches)
	sh.fill()
	if !m.reach(sh, limit) {
		return nil, 0, impossible
	}
	d := descent{
		model: m, shape: sh, limit: limit, effort: effort, starts: m.scratch.starts[:stages+1], lost: stages,
	}
	if d.excluded() {
		return nil, 0, impossible
	}
	sh.fillRest()
	d.starts[0] = 0
	d.place(0)
	switch {
	case d.best != nil:
		return d.best, d.seconds, found
	case d.spent():
		return nil, 0, gaveUp
	}
	return nil, 0, impossible
}

type descent struct {
	*model
	*shape
	limit             float64
	effort            int
	starts            []int
	evaluated, looked int
	best              []int
	seconds           float64
	lost              int // no split with these starts up to this stage's is within the limit
}

// place tries the ends of stage s and everything after, nearest to an equal share of what is left first; it stops at
// the first split within the limit.
func (d *descent) place(s int) {
	if s == d.stages {
		d.evaluated++
		if seconds := d.makespan(d.starts, d.microBatches); seconds <= d.limit {
			d.best, d.seconds = slices.Clone(d.starts), seconds
		} else {
			d.learn()
		}
		return
	}
	least, _ := d.sizes(d.stages)
	low, high := d.starts[s]+least, d.end(s, d.starts[s])
	share := max(low, min(high, d.share(s)))
	for distance := 0; share-distance >= low || share+distance <= high; distance++ {
		if share+distance <= high {
			d.try(s, share+distance)
		}
		if distance > 0 && share-distance >= low {
			d.try(s, share-distance)
		}
	}
}

// share is the first end with which stage s has its equal share of the work that is left.
func (d *descent) share(s int) int {
	done, n := d.total[d.starts[s]], len(d.layers)
	target := done + (d.total[n]-done)/float64(d.stages-s)
	return sort.Search(n, func(end int) bool { return d.total[end]*(1+1e-12) >= target })
}

func (d *descent) try(s, end int) {
	if d.best != nil || d.spent() || d.lost <= s || d.follower(s+1, end) != end {
		return
	}
	d.looked++
	if d.allows(s, end) && d.together(d.shape, d.starts, s, end) <= d.limit {
		d.starts[s+1], d.lost = end, d.stages
		d.place(s + 1)
	}
}

func (d *descent) spent() bool { return d.evaluated >= d.effort || d.looked >= 100*d.effort }

func ranges(starts []int) []estimate.Range {
	stages := make([]estimate.Range, len(starts)-1)
	for s := range stages {
		stages[s] = estimate.Range{First: starts[s], End: starts[s+1]}
	}
	return stages
}

var never = math.Inf(1)
