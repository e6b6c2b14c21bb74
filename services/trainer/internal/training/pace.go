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
