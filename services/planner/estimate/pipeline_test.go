package estimate

import (
	"math/rand"
	"slices"
	"testing"
)

// operation is one forward or backward of one micro-batch on one stage.
type operation struct {
	stage, microBatch int
	backward          bool
}

// order is the 1F1B order of a stage, written down operation by operation.
func order(stage, stages, microBatches int) []operation {
	var ops []operation
	forward, backward := 0, 0
	for ; forward < min(microBatches, stages-1-stage); forward++ {
		ops = append(ops, operation{stage, forward, false})
	}
	for ; forward < microBatches; forward, backward = forward+1, backward+1 {
		ops = append(ops, operation{stage, forward, false}, operation{stage, backward, true})
	}
	for ; backward < microBatches; backward++ {
		ops = append(ops, operation{stage, backward, true})
	}
	return ops
}

// slowFinish is the twin: the longest path to the end of each stage's last operation, by following every dependency.
func slowFinish(p Pipeline) []float64 {
	stages := len(p.ForwardSeconds)
	previous := map[operation]operation{}
	last := make([]operation, stages)
	for s := range stages {
		ops := order(s, stages, p.MicroBatches)
		for k := 1; k < len(ops); k++ {
			previous[ops[k]] = ops[k-1]
		}
		last[s] = ops[len(ops)-1]
	}
	known := map[operation]float64{}
	var end func(operation) float64
	end = func(op operation) float64 {
		if at, ok := known[op]; ok {
			return at
		}
		start, s := 0.0, op.stage
		if before, ok := previous[op]; ok {
			start = end(before)
		}
		duration := p.ForwardSeconds[s]
		if !op.backward && s > 0 {
			start = max(start, end(operation{s - 1, op.microBatch, false})+p.ForwardTransferSeconds[s-1])
		}
		if op.backward {
			duration = p.BackwardSeconds[s]
			if s < stages-1 {
				start = max(start, end(operation{s + 1, op.microBatch, true})+p.BackwardTransferSeconds[s])
			}
		}
		known[op] = start + duration
		return start + duration
	}
	finish := make([]float64, stages)
	for s := range finish {
		finish[s] = end(last[s])
	}
	return finish
}

// slowInFlight walks the order of a stage and counts the forwards that have no backward yet.
func slowInFlight(stage, stages, microBatches int) int {
	held, most := 0, 0
	for _, op := range order(stage, stages, microBatches) {
		if op.backward {
			held--
		} else {
			held++
		}
		most = max(most, held)
	}
	return most
}

func randomTimes(random *rand.Rand, n, limit int) []float64 {
	times := make([]float64, n)
	for i := range times {
		times[i] = float64(random.Intn(limit))
	}
	return times
}

func TestThePipelineTakesTheLongestPathThroughItsOperations(t *testing.T) {
	const seed = 1
	random := rand.New(rand.NewSource(seed))
	for round := range 2000 {
		stages := 1 + random.Intn(7)
		p := Pipeline{
			MicroBatches:            1 + random.Intn(12),
			ForwardSeconds:          randomTimes(random, stages, 30),
			BackwardSeconds:         randomTimes(random, stages, 40),
			ForwardTransferSeconds:  randomTimes(random, stages-1, 10),
			BackwardTransferSeconds: randomTimes(random, stages-1, 10),
		}
		got, want := OneForwardOneBackward(p), slowFinish(p)
		if !slices.Equal(got.StageFinishSeconds, want) || got.MakespanSeconds != slices.Max(want) {
			t.Fatalf("seed %d round %d: %+v: got %+v, want stages to finish at %v", seed, round, p, got, want)
		}
		if fast := p.Makespan(make([]float64, 4*stages)); fast != got.MakespanSeconds {
			t.Fatalf("seed %d round %d: %+v: Makespan %v, want %v", seed, round, p, fast, got.MakespanSeconds)
		}
		for s, peak := range got.PeakInFlight {
			if want := slowInFlight(s, stages, p.MicroBatches); peak != want {
				t.Fatalf("seed %d round %d: stage %d of %d holds %d micro-batches, want %d", seed, round, s, stages,
					peak, want)
			}
		}
	}
}

func TestAPipelineWithFreeTransfersNeedsNoTransferTimes(t *testing.T) {
	p := Pipeline{MicroBatches: 5, ForwardSeconds: []float64{1, 2, 3}, BackwardSeconds: []float64{2, 4, 6}}
	zero := p
	zero.ForwardTransferSeconds, zero.BackwardTransferSeconds = []float64{0, 0}, []float64{0, 0}
	if got, want := OneForwardOneBackward(p).MakespanSeconds, OneForwardOneBackward(zero).MakespanSeconds; got != want {
		t.Fatalf("got %v, want %v", got, want)
	}
}

func TestEqualStagesFollowTheClosedFormula(t *testing.T) {
	for stages := 1; stages <= 6; stages++ {
		for microBatches := 1; microBatches <= 9; microBatches++ {
			p := Pipeline{
				MicroBatches: microBatches, ForwardSeconds: repeat(3, stages), BackwardSeconds: repeat(5, stages),
			}
			if got, want := OneForwardOneBackward(p).MakespanSeconds, float64(microBatches+stages-1)*8; got != want {
				t.Errorf("%d stages, %d micro-batches: got %v, want %v", stages, microBatches, got, want)
			}
		}
	}
}

func TestOneMoreMicroBatchIsNeverFaster(t *testing.T) {
	const seed = 2
	random := rand.New(rand.NewSource(seed))
	for range 500 {
		stages := 1 + random.Intn(6)
		p := Pipeline{
			ForwardSeconds: randomTimes(random, stages, 30), BackwardSeconds: randomTimes(random, stages, 30),
			ForwardTransferSeconds:  randomTimes(random, stages-1, 9),
			BackwardTransferSeconds: randomTimes(random, stages-1, 9),
		}
		before := 0.0
		for p.MicroBatches = 1; p.MicroBatches <= 12; p.MicroBatches++ {
			now := OneForwardOneBackward(p).MakespanSeconds
			if now < before {
				t.Fatalf("seed %d: %+v: %v after %v", seed, p, now, before)
			}
			before = now
		}
	}
}

func TestSkippingWhatRepeatsChangesNoTime(t *testing.T) {
	const seed = 3
	random := rand.New(rand.NewSource(seed))
	for round := range 1000 {
		stages := 1 + random.Intn(6)
		p := Pipeline{
			MicroBatches:   1 + random.Intn(200),
			ForwardSeconds: randomTimes(random, stages, 8), BackwardSeconds: randomTimes(random, stages, 8),
			ForwardTransferSeconds:  randomTimes(random, stages-1, 4),
			BackwardTransferSeconds: randomTimes(random, stages-1, 4),
		}
		got, want := p.Makespan(make([]float64, 4*stages)), OneForwardOneBackward(p).MakespanSeconds
		if got != want {
			t.Fatalf("seed %d round %d: %+v: got %v, want %v", seed, round, p, got, want)
		}
	}
}

func BenchmarkMakespanOf8StagesAnd64MicroBatches(b *testing.B) {
	p := Pipeline{MicroBatches: 64, ForwardSeconds: repeat(1, 8), BackwardSeconds: repeat(2, 8)}
	scratch := make([]float64, 32)
	for b.Loop() {
		p.Makespan(scratch)
	}
}
