package estimate

// Path is a way through the 1F1B schedule from its first operation to its last, each of which waits for the one before.
// How often it goes through each stage depends on the numbers of stages and micro-batches only: whatever the stages take,
// no schedule is shorter than the path.
type Path struct {
	Forwards, Backwards []float64 // how many of each stage
	Transfers           float64   // over all edges together, both directions
}

// Trail is scratch for Critical.
type Trail struct {
	clock, forward []float64
	waits          []wait // by round and stage
}

// wait tells which operations a stage has in a round, and which of them another stage kept waiting.
type wait struct{ hasForward, forwardLate, backwardLate bool }

// Critical is the path that takes longest: as long as the Makespan, where transfers take equally long. O((M+P)*P) time.
func (p Pipeline) Critical(t *Trail) Path {
	stages := len(p.ForwardSeconds)
	first := 1 - stages
	t.clock, t.forward = cleared(t.clock, stages), cleared(t.forward, stages)
	t.waits = cleared(t.waits, (p.MicroBatches-first)*stages)
	for round := first; round < p.MicroBatches; round++ {
		p.advanceNoting(round, t.clock, t.forward, t.waits[(round-first)*stages:])
	}
	path := Path{Forwards: make([]float64, stages), Backwards: make([]float64, stages)}
	for round, s, backward := p.MicroBatches-1, 0, true; round >= first; {
		wait := t.waits[(round-first)*stages+s]
		switch {
		case backward && round >= 0:
			path.Backwards[s]++
			if backward = wait.backwardLate; backward {
				path.Transfers++
				s++
			}
		case !backward && wait.hasForward:
			path.Forwards[s]++
			if backward = !wait.forwardLate; !backward {
				path.Transfers++
				s--
			}
			round--
		default:
			if backward = !backward; backward {
				round--
			}
		}
	}
	return path
}

func cleared[T any](list []T, length int) []T {
	if cap(list) < length {
		return make([]T, length)
	}
	list = list[:length]
	clear(list)
	return list
}

// advanceNoting is advance, and notes what was waited for.
func (p *Pipeline) advanceNoting(round int, clock, forward []float64, waits []wait) {
	last := len(clock) - 1
	first, end := max(0, round+last-p.MicroBatches+1), min(last, round+last)
	gradient := 0.0
	for s := last; s >= 0; s-- {
		at, noted := clock[s], &waits[s]
		if s >= first && s <= end {
			noted.hasForward = true
			if s > 0 {
				ready := forward[s-1] + transfer(p.ForwardTransferSeconds, s-1)
				noted.forwardLate = ready > at
				at = later(at, ready)
			}
			at += p.ForwardSeconds[s]
			forward[s] = at
		}
		if round >= 0 {
			noted.backwardLate = gradient > at
			at = later(at, gradient) + p.BackwardSeconds[s]
			if s > 0 {
				gradient = at + transfer(p.BackwardTransferSeconds, s-1)
			}
		}
		clock[s] = at
	}
}
