package search

import "math"

// shape is a pipeline of so many stages with so many micro-batches, before its layers are split.
type shape struct {
	stages, microBatches int
	roundTrip            float64 // one micro-batch alone, all layers and edges, both directions
	edge                 float64 // both directions of one edge
	windows              []window
}

// window counts, for stages s..t, how often their work lies on one path through the 1F1B schedule. While the pipeline
// is in its steady state, forward m of stage s leads to forward m of t, there to the backward that follows it, back to
// s, and there to forward m + (t-s+1): every t-s+1 micro-batches cost the whole window once, transfers included. Three
// paths use that cycle as often as they can: entering by the first forwards of s and leaving by its last backwards
// (through), entering by the round trip of micro-batch 0 (late), and leaving by the round trip of the last one (early).
type window struct {
	through, late, early path
	exists               bool // the window is never full with fewer micro-batches than stages after it
}

// path is cycles * (window) + forwards * (stage s forward) + backwards * (stage s backward).
type path struct{ cycles, forwards, backwards float64 }

func (p path) seconds(window, forward, backward float64) float64 {
	return p.cycles*window + p.forwards*forward + p.backwards*backward
}

func (sh *shape) window(s, t int) *window { return &sh.windows[s*sh.stages+t] }

func (m *model) shape(stages, microBatches int) *shape {
	sh := &m.scratch.shape
	sh.stages, sh.microBatches = stages, microBatches
	sh.edge = 2 * m.transferSeconds
	sh.roundTrip = m.total[len(m.layers)] + sh.edge*float64(stages-1)
	return sh
}

// fill counts the windows of single stages and of the last stages, which are bounds of each stage by itself; fillRest
// counts the others.
func (sh *shape) fill() {
	if cap(sh.windows) < sh.stages*sh.stages {
		sh.windows = make([]window, sh.stages*sh.stages)
	}
	sh.windows = sh.windows[:sh.stages*sh.stages]
	for s := range sh.stages {
		*sh.window(s, s) = newWindow(s, s, sh.stages, sh.microBatches)
		*sh.window(s, sh.stages-1) = newWindow(s, sh.stages-1, sh.stages, sh.microBatches)
	}
}

func (sh *shape) fillRest() {
	for s := range sh.stages {
		for t := s + 1; t < sh.stages-1; t++ {
			*sh.window(s, t) = newWindow(s, t, sh.stages, sh.microBatches)
		}
	}
}

func newWindow(s, t, stages, microBatches int) window {
	last, width := microBatches-1, t-s+1
	warmS, warmT := min(microBatches, stages-1-s), min(microBatches, stages-1-t)
	// rest is what stage s still does after the backward of micro-batch i.
	rest := func(cycles, extraForwards, i int) path {
		return path{float64(cycles), float64(extraForwards + max(0, last-i-warmS)), float64(last - i)}
	}
	var w window
	if last > warmS {
		cycles := (last - warmS + width - 1) / width
		w.late = rest(cycles, 0, cycles*width)
	} else {
		w.late = rest(0, 0, 0)
	}
	if last >= warmT {
		cycles := (last - warmT) / width
		w.exists = true
		w.through = rest(cycles+1, warmT, cycles*width)
		w.early = rest(cycles, warmT, warmT+cycles*width)
	}
	return w
}

// bound is a lower bound on the makespan of every split in which stages s..t take window seconds together (transfers
// between them included), the stages before them take prefix, and stage s takes forward and backward.
func (sh *shape) bound(s, t int, prefix, window, forward, backward float64) float64 {
	w := sh.window(s, t)
	return w.bound(sh.roundTrip, prefix, window, forward, backward)
}

func (w *window) bound(roundTrip, prefix, window, forward, backward float64) float64 {
	least := roundTrip + w.late.seconds(window, forward, backward)
	if w.exists {
		least = max(least, roundTrip+w.early.seconds(window, forward, backward))
		least = max(least, prefix+w.through.seconds(window, forward, backward))
	}
	return least
}

// floor is a lower bound on the makespan of every split, O(stages). The work of the largest stage is at least the mean,
// and at least the largest layer; and stage s adds (M-1)*x_s - min(M-1, P-1-s)*f_s to the round trip (or with b_s for
// f_s), which is smallest when all stages add the same.
func (m *model) floor(stages, microBatches int) float64 {
	known := m.floors[stages-1]
	seconds, ok := known[microBatches]
	if !ok {
		seconds = m.newFloor(stages, microBatches)
		known[microBatches] = seconds
	}
	return seconds
}

func (m *model) newFloor(stages, microBatches int) float64 {
	total := m.total[len(m.layers)]
	others := float64(microBatches - 1)
	roundTrip := total + 2*m.transferSeconds*float64(stages-1)
	least := max(float64(microBatches)*max(total/float64(stages), m.largestLayer), roundTrip)
	cycles := float64((microBatches - 1) / stages)
	least = max(least, roundTrip*(1+cycles))
	for _, share := range []float64{m.forwardShare, m.backwardShare} {
		inverse := 0.0
		for s := range stages {
			inverse += 1 / (others - min(others, float64(stages-1-s))*share)
		}
		if inverse > 0 && !math.IsInf(inverse, 1) && !math.IsNaN(inverse) {
			least = max(least, roundTrip+total/inverse)
		}
	}
	all := newWindow(0, stages-1, stages, microBatches)
	least = max(least, all.bound(roundTrip, 0, roundTrip, m.forward[1], m.total[1]-m.forward[1]))
	least = max(least, m.ofWholeLayers(stages, microBatches, roundTrip))
	return least * (1 - 1e-12) // these divisions may round up
}

// ofWholeLayers bounds the stage that takes longest by itself, as floor does, but stages hold whole layers: with so many of
// them each takes at least what the shortest run of as many layers does. Layers are dealt one by one to the stage that is
// best with one more. O(stages * layers).
func (m *model) ofWholeLayers(stages, microBatches int, roundTrip float64) float64 {
	others, share := float64(microBatches-1), min(m.forwardShare, m.backwardShare)
	seconds := func(s, layers int) float64 {
		x := m.shortest[layers]
		return max(float64(microBatches)*x, roundTrip+x*(others-min(others, float64(stages-1-s))*share))
	}
	longest, dealt, next := 0.0, m.scratch.starts[:stages], m.scratch.forward[:stages]
	for s := range stages {
		dealt[s], next[s] = 1, seconds(s, 2)
		longest = max(longest, seconds(s, 1))
	}
	for range len(m.layers) - stages {
		best := 0
		for s := range stages {
			if next[s] < next[best] {
				best = s
			}
		}
		longest = max(longest, next[best])
		dealt[best]++
		next[best] = seconds(best, dealt[best]+1)
	}
	return longest
}
