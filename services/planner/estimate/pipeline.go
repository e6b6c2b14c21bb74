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

// Makespan is OneForwardOneBackward's MakespanSeconds without an allocation: scratch needs room for two numbers a
// stage. For searches that ask a million times.
func (p Pipeline) Makespan(scratch []float64) float64 {
	stages := len(p.ForwardSeconds)
	clock, forward := scratch[:stages], scratch[stages:2*stages]
	clear(clock)
	clear(forward)
	latest := 0.0
	for _, end := range p.finish(clock, forward) {
		latest = max(latest, end)
	}
	return latest
}

// finish advances clock (end of each stage's last operation) and forward (end of its last forward) through all rounds.
func (p Pipeline) finish(clock, forward []float64) []float64 {
	stages := len(clock)
	for round := 1 - stages; round < p.MicroBatches; round++ {
		gradient := 0.0 // when the stage after has done this round's backward
		for s := stages - 1; s >= 0; s-- {
			if m := round + stages - 1 - s; m >= 0 && m < p.MicroBatches {
				clock[s] = max(clock[s], p.arrival(forward, s)) + p.ForwardSeconds[s]
				forward[s] = clock[s]
			}
			if round >= 0 {
				if s < stages-1 && p.BackwardTransferSeconds != nil {
					gradient += p.BackwardTransferSeconds[s]
				}
				clock[s] = max(clock[s], gradient) + p.BackwardSeconds[s]
				gradient = clock[s]
			}
		}
	}
	return clock
}

// arrival is when the activations of stage s's next forward are there.
func (p Pipeline) arrival(forward []float64, s int) float64 {
	switch {
	case s == 0:
		return 0
	case p.ForwardTransferSeconds == nil:
		return forward[s-1]
	default:
		return forward[s-1] + p.ForwardTransferSeconds[s-1]
	}
}
