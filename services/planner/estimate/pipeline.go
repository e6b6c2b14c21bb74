// Package estimate predicts what a plan costs: the seconds of a training step, the bytes of a stage at its peak,
// and the samples a choice is expected to deliver before the next failure.
//
// Everything is a pure function of its arguments. Times are float64 in one unit, seconds by name; whole numbers
// (microseconds, say) stay exact, because nothing but additions and maxima touches them in the pipeline model.
package estimate

// Pipeline is one pipeline as its stages see it. A transfer overlaps with computing on both sides: it delays the
// receiver, not the sender.
type Pipeline struct {
	MicroBatches    int
	ForwardSeconds  []float64 // one micro-batch through each stage
	BackwardSeconds []float64
	// Transfer times of one micro-batch, an entry an edge (one less than stages): activations from stage s to s+1,
	// gradients from stage s+1 to s. Nil where transfers are free.
	ForwardTransferSeconds  []float64
	BackwardTransferSeconds []float64
}

// Schedule is what one step of a Pipeline looks like.
type Schedule struct {
	MakespanSeconds    float64   // end of the last computation
	StageFinishSeconds []float64 // end of each stage's last backward
	PeakInFlight       []int     // micro-batches whose activations a stage holds at once
}

// OneForwardOneBackward runs the 1F1B schedule (Chameleon IV-C): stage s of P does min(M, P-1-s) forwards, then
// alternates forward and backward, then does the backwards that are left. O((M+P)*P) time.
//
// The schedule falls into rounds -(P-1) ... M-1: in round i, stage s does the forward of micro-batch i+P-1-s, then
// the backward of micro-batch i, each where there is such a micro-batch. A forward waits for the stage before in the
// round before, a backward for the stage after in its own round, so one sweep a round from the last stage to the
// first sees every value it needs, and the state is two numbers a stage.
func OneForwardOneBackward(p Pipeline) Schedule {
	finish := p.finish(make([]float64, len(p.ForwardSeconds)), make([]float64, len(p.ForwardSeconds)))
	schedule := Schedule{StageFinishSeconds: finish, PeakInFlight: make([]int, len(finish))}
	for s, end := range finish {
		schedule.MakespanSeconds = max(schedule.MakespanSeconds, end)
		schedule.PeakInFlight[s] = InFlight(s, len(finish), p.MicroBatches)
	}
	return schedule
}

// InFlight is the number of micro-batches whose activations stage s of a 1F1B pipeline holds at its peak.
func InFlight(stage, stages, microBatches int) int {
	return min(microBatches, stages-stage)
}

// finish advances clock (end of each stage's last operation) and forward (end of its last forward) through all rounds.
func (p *Pipeline) finish(clock, forward []float64) []float64 {
	for round := 1 - len(clock); round < p.MicroBatches; round++ {
		p.advance(round, clock, forward)
	}
	return clock
}

// advance does one round. Comparisons instead of max: twice as fast, as nothing here is NaN.
func (p *Pipeline) advance(round int, clock, forward []float64) {
	last := len(clock) - 1
	// Stages from first to end have a forward in this round, all have a backward once the rounds are not negative.
	first, end := max(0, round+last-p.MicroBatches+1), min(last, round+last)
	if first == 0 && round >= 0 && p.ForwardTransferSeconds != nil && p.BackwardTransferSeconds != nil {
		p.advanceAll(clock, forward)
		return
	}
	gradient := 0.0 // when the stage after has done this round's backward
	for s := last; s >= 0; s-- {
		at := clock[s]
		if s >= first && s <= end {
			if s > 0 {
				at = later(at, forward[s-1]+transfer(p.ForwardTransferSeconds, s-1))
			}
			at += p.ForwardSeconds[s]
			forward[s] = at
		}
		if round >= 0 {
			at = later(at, gradient) + p.BackwardSeconds[s]
			if s > 0 {
				gradient = at + transfer(p.BackwardTransferSeconds, s-1)
			}
		}
		clock[s] = at
	}
}

// advanceAll is advance where all stages have a forward and a backward, as in most rounds, and where transfers take time.
func (p *Pipeline) advanceAll(clock, forward []float64) {
	stages := len(clock)
	ahead, back := p.ForwardSeconds[:stages], p.BackwardSeconds[:stages]
	out, in := p.ForwardTransferSeconds[:stages-1], p.BackwardTransferSeconds[:stages-1]
	forward = forward[:stages]
	gradient := 0.0
	for s := stages - 1; s > 0; s-- {
		at := later(clock[s], forward[s-1]+out[s-1]) + ahead[s]
		forward[s] = at
		at = later(at, gradient) + back[s]
		clock[s], gradient = at, at+in[s-1]
	}
	forward[0] = clock[0] + ahead[0]
	clock[0] = later(forward[0], gradient) + back[0]
}

func later(a, b float64) float64 {
	if a > b {
		return a
	}
	return b
}

func transfer(seconds []float64, edge int) float64 {
	if seconds == nil {
		return 0
	}
	return seconds[edge]
}
