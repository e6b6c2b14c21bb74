package estimate

import (
	"math"
	"math/rand"
	"slices"
	"testing"
)

func uniformLayers(n int) []Layer {
	layers := make([]Layer, n)
	for i := range layers {
		layers[i] = Layer{ForwardSeconds: 3, BackwardSeconds: 5, StaticBytes: 100, ActivationBytes: 7}
	}
	return layers
}

func TestPeakBytesCountMicroBatchesInFlight(t *testing.T) {
	stages := []Range{{0, 2}, {2, 3}, {3, 6}}
	if got, want := PeakBytes(uniformLayers(6), stages, 8), []int64{2 * 121, 114, 3 * 107}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got, want := PeakBytes(uniformLayers(6), stages, 1), []int64{2 * 107, 107, 3 * 107}; !slices.Equal(got, want) {
		t.Errorf("one micro-batch: got %v, want %v", got, want)
	}
}

func TestATransitionCostsTheSamplesOfItsTime(t *testing.T) {
	if got := ExpectedThroughput(64, 2, 0, 100); got != 32 {
		t.Errorf("free transition: got %v, want 32", got)
	}
	if got, want := ExpectedThroughput(64, 2, 100, 100), 32/math.E; math.Abs(got-want) > 1e-12 {
		t.Errorf("a transition of one mean time: got %v, want %v", got, want)
	}
}

func TestExpectedThroughputIsTheMeanOverMemorylessFailures(t *testing.T) {
	const seed, rounds, between, transition = 4, 200_000, 100.0, 30.0
	random := rand.New(rand.NewSource(seed))
	trained := 0.0
	for range rounds {
		trained += max(0, random.ExpFloat64()*between-transition)
	}
	mean := trained / rounds / between
	if got := ExpectedThroughput(1, 1, transition, between); math.Abs(got-mean) > 0.01 {
		t.Fatalf("seed %d: got %v, simulated %v", seed, got, mean)
	}
}

// What is trained until a failure, counted second by second: nothing in a transition, and from the return on whatever
// plan is better.
func TestThroughputWithReturnIsTheMeanOverMemorylessFailures(t *testing.T) {
	const seed, between = 5, 100.0
	random := rand.New(rand.NewSource(seed))
	for range 50 {
		step, transition := 1+random.Float64(), 60*random.Float64()
		back := Return{AfterSeconds: 60 * random.Float64(), StepSeconds: 1 + random.Float64(),
			TransitionSeconds: 20 * random.Float64()}
		then, stay, goBack := max(transition, back.AfterSeconds), 0.0, 0.0
		const tick = 0.01
		for at := tick / 2; at < 20*between; at += tick {
			alive := math.Exp(-at/between) * tick / between
			if at > transition {
				stay += alive / step
			}
			switch {
			case at > transition && at < then:
				goBack += alive / step
			case at > then+back.TransitionSeconds:
				goBack += alive / back.StepSeconds
			}
		}
		if got, want := ThroughputWithReturn(1, step, transition, back, between),
			max(stay, goBack); math.Abs(got-want) > 1e-3 {
			t.Fatalf("step %v, transition %v, %+v: got %v, counted %v", step, transition, back, got, want)
		}
	}
}

func TestARingOfOneNeedsNoTime(t *testing.T) {
	if got := RingSeconds(1e9, 1, 1e6, 0.1); got != 0 {
		t.Errorf("got %v", got)
	}
	if got, want := RingSeconds(4e6, 4, 1e6, 0.5), 6.0+3.0; got != want {
		t.Errorf("four holders: got %v, want %v", got, want)
	}
}
