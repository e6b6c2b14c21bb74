package estimate

// Makespan is OneForwardOneBackward's MakespanSeconds for searches that ask a million times: no allocation (scratch
// needs room for four numbers a stage), and rounds that only repeat are skipped. In the steady state all stages do a
// forward and a backward each round, and what they do depends on differences of times only; so where all times are a
// constant later than they were some rounds ago, every so many rounds add that constant. Nothing is skipped if rounding
// keeps the differences from being equal; on whole numbers the skip is exact.
func (p Pipeline) Makespan(scratch []float64) float64 {
	stages := len(p.ForwardSeconds)
	state, before := scratch[:2*stages], scratch[2*stages:4*stages]
	clock, forward := state[:stages], state[stages:]
	clear(state)
	steady := p.MicroBatches - stages // the last round in which all stages have a forward
	kept := 0                         // the round whose end before is
	for round := 1 - stages; round < p.MicroBatches; round++ {
		p.advance(round, clock, forward)
		switch period := round - kept; {
		case round < 0 || round >= steady:
		case round > 0 && repeats(state, before):
			skipped := (steady - round) / period
			add(state, float64(skipped)*(state[0]-before[0]))
			round += skipped * period
			steady = round // what is left is less than a period
		case round&(round-1) == 0: // Brent: keep the rounds that are powers of two
			copy(before, state)
			kept = round
		}
	}
	latest := 0.0
	for _, end := range clock {
		latest = later(latest, end)
	}
	return latest
}

// repeats reports whether all times are later by the same constant.
func repeats(now, before []float64) bool {
	shift := now[0] - before[0]
	for i, time := range now {
		if time-before[i] != shift {
			return false
		}
	}
	return true
}

func add(times []float64, seconds float64) {
	for i := range times {
		times[i] += seconds
	}
}
