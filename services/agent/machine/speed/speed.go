// Package speed measures how fast a node computes, and what each of its layers takes, so that work can be dealt by it.
package speed

import "github.com/reknit/reknit/events"

const (
	// measuredSteps is over how many steps a speed is measured.
	measuredSteps = 20
	// warmSteps are not measured: the first ones under a plan warm caches, and may compile.
	warmSteps = 2
	// A speed that changed by less than half is not worth a planner's attention.
	change = 1.5
)

// Meter measures one node, from one plan to the next. Its first word of a node is always news; later ones are where the speed
// has changed. Each has the next window be twice as long, so that a node whose speed wavers tells so log2(steps) times a plan.
type Meter struct {
	declared float64 // seconds of the passes done, as the job says
	measured float64
	steps    int     // of the window; below zero: that still warm up
	window   int     // steps; zero: measuredSteps
	told     float64 // factor that was told last; 0 for none
}

// Switch begins anew, under another plan.
func (m *Meter) Switch() {
	m.declared, m.measured, m.steps, m.window = 0, 0, -warmSteps, 0
}

// Pass notes what passes took, and what the job says that they take.
func (m *Meter) Pass(declaredSeconds, measuredSeconds float64) {
	if m.steps >= 0 {
		m.declared += declaredSeconds
		m.measured += measuredSeconds
	}
}

// Step notes a completed step. It returns the speed factor when there is news: 2 is twice as fast as declared.
func (m *Meter) Step() (factor float64, news bool) {
	m.steps++
	if m.steps < max(m.window, measuredSteps) || m.declared == 0 || m.measured == 0 {
		return 0, false
	}
	factor = m.declared / m.measured
	m.declared, m.measured, m.steps = 0, 0, 0
	if m.told > 0 && factor < m.told*change && factor > m.told/change {
		return factor, false
	}
	m.told, m.window = factor, 2*max(m.window, measuredSteps)
	return factor, true
}

// Layers measures what a micro-batch takes in each layer of a stage.
type Layers struct {
	stage   events.Range
	seconds [2][]float64 // forward and backward, by layer of the stage
	passes  [2][]float64
	told    map[int]events.LayerCost
}

// Switch begins anew, with the layers of another plan.
func (l *Layers) Switch(stage events.Range) {
	l.stage = stage
	for direction := range 2 {
		l.seconds[direction], l.passes[direction] = make([]float64, stage.Count()), make([]float64, stage.Count())
	}
}

// Pass notes how long a layer took for some micro-batches, which may be a part of one.
func (l *Layers) Pass(layer int, backward bool, microBatches, seconds float64) {
	direction, at := 0, layer-l.stage.First
	if backward {
		direction = 1
	}
	if at >= 0 && at < l.stage.Count() {
		l.seconds[direction][at] += seconds
		l.passes[direction][at] += microBatches
	}
}

// Costs returns what each layer took; nil where some layer had no pass in some direction.
func (l *Layers) Costs() []events.LayerCost {
	costs := make([]events.LayerCost, l.stage.Count())
	for i := range costs {
		if l.passes[0][i] == 0 || l.passes[1][i] == 0 {
			return nil
		}
		costs[i].ForwardSeconds, costs[i].BackwardSeconds = l.seconds[0][i]/l.passes[0][i], l.seconds[1][i]/l.passes[1][i]
	}
	return costs
}

// News reports whether costs of layers from a first one on tell more than was told of them: each layer once, and again where it
// takes half as long again, or needs half as much memory again.
func (l *Layers) News(first int, costs []events.LayerCost) (news bool) {
	if l.told == nil {
		l.told = map[int]events.LayerCost{}
	}
	for i, cost := range costs {
		before, known := l.told[first+i]
		news = news || !known || differ(before.ForwardSeconds+before.BackwardSeconds, cost.ForwardSeconds+cost.BackwardSeconds) ||
			differ(float64(before.ActivationBytes), float64(cost.ActivationBytes))
	}
	if news {
		for i, cost := range costs {
			l.told[first+i] = cost
		}
	}
	return news
}

func differ(a, b float64) bool { return a > b*change || b > a*change }
