package detect

// Outcome is how a probe of a link went.
type Outcome int

const (
	Worked Outcome = iota
	Failed         // the prober lives and could not reach the other end
	Silent         // no answer from the prober in time
)

// Reports holds when each end of a link last reported that the other does not answer.
type Reports map[string]float64

// Broken reports whether a link between two living nodes is lost: one end says so and a probe confirms it, or both
// ends say so and no probe refutes it. A peer's word alone is not enough: when a trainer dies, those beside it close
// connections to each other while they give up the step.
func (r Reports) Broken(now, windowSeconds float64, outcome Outcome) bool {
	recent := 0
	for _, reported := range r {
		if now-reported <= windowSeconds {
			recent++
		}
	}
	switch outcome {
	case Failed:
		return recent >= 1
	case Silent:
		return recent >= 2
	}
	return false
}
