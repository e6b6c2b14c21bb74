package estimate

import (
	"errors"
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

func symmetricMembers(pipelines, stages, microBatches int) []Member {
	members := make([]Member, pipelines)
	for p := range members {
		members[p].MicroBatches = microBatches
		for s := range stages {
			members[p].Stages = append(members[p].Stages, Range{s, s + 1})
		}
	}
	return members
}

func TestSurvivorsOfAStageShareItsMicroBatches(t *testing.T) {
	// Two pipelines of three stages, six micro-batches each, one worker of stage 1 lost: its only peer does all twelve.
	plan := Symmetric{Pipelines: 2, MicroBatches: 6, ForwardSeconds: 1, BackwardSeconds: 2, FailedPerStage: []int{0, 1, 0}}
	got, err := plan.StepSeconds()
	if err != nil || got != (12+2)*3 {
		t.Fatalf("got %v, %v, want 42", got, err)
	}
	plan.Pipelines = 5 // four survivors share 30: 7.5, that is 8 whole ones
	whole, _ := plan.StepSeconds()
	fractional, _ := plan.FractionalStepSeconds()
	if whole != (8+2)*3 || fractional != (7.5+2)*3 {
		t.Fatalf("got %v whole, %v fractional, want 30 and 28.5", whole, fractional)
	}
}

func TestAStageWithoutSurvivorsCannotBeRerouted(t *testing.T) {
	plan := Symmetric{Pipelines: 2, MicroBatches: 6, FailedPerStage: []int{0, 2}}
	if _, err := plan.StepSeconds(); !errors.Is(err, ErrStageLost) {
		t.Errorf("StepSeconds: %v", err)
	}
	if _, err := plan.FractionalStepSeconds(); !errors.Is(err, ErrStageLost) {
		t.Errorf("FractionalStepSeconds: %v", err)
	}
	lost := []Place{{0, 1}, {1, 1}}
	if _, err := ReroutedStepSeconds(uniformLayers(2), symmetricMembers(2, 2, 6), 0, lost); !errors.Is(err, ErrStageLost) {
		t.Errorf("ReroutedStepSeconds: %v", err)
	}
	if _, err := ReroutedPeakBytes(uniformLayers(2), symmetricMembers(2, 2, 6), lost); !errors.Is(err, ErrStageLost) {
		t.Errorf("ReroutedPeakBytes: %v", err)
	}
}

func TestTheGeneralRerouteIsTheSymmetricOneOnEqualPipelines(t *testing.T) {
	const seed = 3
	random := rand.New(rand.NewSource(seed))
	for range 500 {
		pipelines, stages, microBatches := 2+random.Intn(4), 1+random.Intn(5), 1+random.Intn(12)
		plan := Symmetric{pipelines, microBatches, 3, 5, make([]int, stages)}
		var failed []Place
		for s := range stages {
			plan.FailedPerStage[s] = random.Intn(pipelines)
			for p := range plan.FailedPerStage[s] {
				failed = append(failed, Place{p, s})
			}
		}
		// Where a whole pipeline survives, so does the closed formula's slowest one.
		want, err := plan.StepSeconds()
		got, err2 := ReroutedStepSeconds(uniformLayers(stages), symmetricMembers(pipelines, stages, microBatches), 0, failed)
		if err != nil || err2 != nil || got != want {
			t.Fatalf("seed %d: %+v: got %v, %v, want %v, %v", seed, plan, got, err2, want, err)
		}
	}
}

func TestWithoutFailuresReroutingChangesNothing(t *testing.T) {
	layers := uniformLayers(5)
	pipelines := []Member{{4, []Range{{0, 2}, {2, 5}}}, {7, []Range{{0, 1}, {1, 3}, {3, 5}}}}
	got, err := ReroutedStepSeconds(layers, pipelines, 1, nil)
	want := 0.0
	for _, p := range pipelines {
		want = max(want, OneForwardOneBackward(OfLayers(layers, p.Stages, p.MicroBatches, 1)).MakespanSeconds)
	}
	if err != nil || got != want {
		t.Fatalf("got %v, %v, want %v", got, err, want)
	}
}

func TestASurvivorKeepsTheLostStagesActivationsToo(t *testing.T) {
	// Stage 0 of two has two micro-batches in flight; its survivor takes over the two of the lost one.
	peaks, err := ReroutedPeakBytes(uniformLayers(2), symmetricMembers(2, 2, 6), []Place{{0, 0}})
	want := [][]int64{{0, 100 + 7}, {100 + 4*7, 100 + 7}}
	if err != nil || !slices.EqualFunc(peaks, want, slices.Equal) {
		t.Fatalf("got %v, %v, want %v", peaks, err, want)
	}
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
	if got := PaperThroughput(64, 2, 25, 100); got != 24 {
		t.Errorf("a quarter of the time lost: got %v, want 24 of 32", got)
	}
	if got := PaperThroughput(64, 2, 101, 100); got != 0 {
		t.Errorf("no time left: got %v, want 0", got)
	}
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

// What is trained until a failure, counted second by second: nothing in a transition, and from the return on whatever plan
// is better.
func TestThroughputWithReturnIsTheMeanOverMemorylessFailures(t *testing.T) {
	const seed, between = 5, 100.0
	random := rand.New(rand.NewSource(seed))
	for range 50 {
		step, transition := 1+random.Float64(), 60*random.Float64()
		back := Return{AfterSeconds: 60 * random.Float64(), StepSeconds: 1 + random.Float64(), TransitionSeconds: 20 * random.Float64()}
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
		if got, want := ThroughputWithReturn(1, step, transition, back, between), max(stay, goBack); math.Abs(got-want) > 1e-3 {
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
