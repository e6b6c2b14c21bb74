package training

import (
	"slices"
	"time"
)

const (
	// paceSteps is how many steps the usual one is the median of.
	paceSteps = 20
	// hungerSteps is for how many usual steps a message may be waited for.
	hungerSteps = 20
)

// pace knows how long a step usually takes.
type pace struct{ seconds []float64 }

// hungerLimit notes a step's duration and returns for how long a message may be waited for: 20 usual steps. (The
// transport has a least limit of its own.)
func (p *pace) hungerLimit(seconds float64) time.Duration {
	p.seconds = append(p.seconds, seconds)
	if len(p.seconds) > paceSteps {
		p.seconds = p.seconds[1:]
	}
	sorted := slices.Sorted(slices.Values(p.seconds))
	return time.Duration(hungerSteps * sorted[len(sorted)/2] * float64(time.Second))
}

const (
	// speedSteps is over how many steps a node's speed is measured: the first ones warm caches.
	speedSteps = 20
	// A speed that changed by less than half is not worth a planner's attention.
	speedChange = 1.5
)

// speed measures how fast this node computes, relative to what the job declares.
type speed struct {
	declared float64 // seconds of the passes done, as the job says
	measured time.Duration
	steps    int
	told     float64 // factor that was told last; 0 for none, which stands for 1
}

// pass notes a pass.
func (s *speed) pass(declaredSeconds float64, measured time.Duration) {
	s.declared += declaredSeconds
	s.measured += measured
}

// step notes a completed step. It returns the speed factor when there is news: 2 is twice as fast as declared.
func (s *speed) step() (factor float64, news bool) {
	s.steps++
	if s.steps < speedSteps || s.declared == 0 || s.measured == 0 {
		return 0, false
	}
	factor = s.declared / s.measured.Seconds()
	told := s.told
	if told == 0 {
		told = 1
	}
	s.declared, s.measured, s.steps = 0, 0, 0
	if factor < told*speedChange && factor > told/speedChange {
		return factor, false
	}
	s.told = factor
	return factor, true
}
