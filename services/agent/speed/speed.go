// Package speed measures how fast a node computes beside what its job declares, so that work can be dealt by it.
package speed

const (
	// measuredSteps is over how many steps a speed is measured: the first ones warm caches.
	measuredSteps = 20
	// A speed that changed by less than half is not worth a planner's attention.
	change = 1.5
)

// Meter measures one node.
type Meter struct {
	declared float64 // seconds of the passes done, as the job says
	measured float64
	steps    int
	told     float64 // factor that was told last; 0 for none, which stands for 1
}

// Pass notes what passes took, and what the job says that they take.
func (m *Meter) Pass(declaredSeconds, measuredSeconds float64) {
	m.declared += declaredSeconds
	m.measured += measuredSeconds
}

// Step notes a completed step. It returns the speed factor when there is news: 2 is twice as fast as declared.
func (m *Meter) Step() (factor float64, news bool) {
	m.steps++
	if m.steps < measuredSteps || m.declared == 0 || m.measured == 0 {
		return 0, false
	}
	factor = m.declared / m.measured
	told := m.told
	if told == 0 {
		told = 1
	}
	m.declared, m.measured, m.steps = 0, 0, 0
	if factor < told*change && factor > told/change {
		return factor, false
	}
	m.told = factor
	return factor, true
}
