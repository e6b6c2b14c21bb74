package chameleon_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/reknit/reknit/services/planner/estimate"
	"github.com/reknit/reknit/services/restorer/layers"
	"github.com/reknit/reknit/tests/papers/chameleon"
)

// Seven nodes make (2,2,3), the paper's example, where lengths are 2 or 3 and there are three pipelines.
func TestLengthsArePeeledOffAsInThePaper(t *testing.T) {
	planner := chameleon.Planner{
		Layers:       slices.Repeat([]estimate.Layer{{ForwardSeconds: 1, BackwardSeconds: 2}}, 32),
		MicroBatches: 24, Shortest: 2, Longest: 3,
	}
	planner.Find(7, 2, 3)
	if planner.Strategies != 1 || len(planner.Plan) != 3 || len(planner.Plan[2].Stages) != 3 {
		t.Fatalf("%d strategies, %+v", planner.Strategies, planner.Plan)
	}
}

func TestATransitionCostsTheSamplesOfItsTime(t *testing.T) {
	if got := chameleon.Throughput(64, 2, 25, 100); got != 24 {
		t.Errorf("a quarter of the time lost: got %v, want 24 of 32", got)
	}
	if got := chameleon.Throughput(64, 2, 101, 100); got != 0 {
		t.Errorf("no time left: got %v, want 0", got)
	}
}

// Five pipelines of three stages, six micro-batches each, one worker of stage 1 lost: its four peers share 30.
func TestSurvivorsShareEvenPartsOfMicroBatches(t *testing.T) {
	if got := chameleon.RerouteSeconds(5, 6, []int{0, 1, 0}, 1, 2); got != (7.5+2)*3 {
		t.Errorf("got %v, want 28.5", got)
	}
}

func TestTheBatchIsSharedByLength(t *testing.T) {
	for _, test := range []struct {
		total         int
		lengths, want []int
	}{
		{42, []int{2, 4, 4, 5, 5}, []int{5, 9, 8, 10, 10}}, // 4.2, 8.4, 8.4, 10.5, 10.5 and two left over
		{8, []int{2, 2}, []int{4, 4}},
		{3, []int{1, 1, 9}, []int{1, 1, 1}}, // 0.3, 0.3, 2.5: the two empty ones take one each
	} {
		if got := chameleon.ProportionalBatches(test.total, test.lengths); !slices.Equal(got, test.want) {
			t.Errorf("%d over %v: got %v, want %v", test.total, test.lengths, got, test.want)
		}
	}
}

func TestEveryPipelineGetsAMicroBatch(t *testing.T) {
	for seed := range uint64(1000) {
		random := rand.New(rand.NewPCG(seed, 7))
		lengths := make([]int, 1+random.IntN(6))
		for j := range lengths {
			lengths[j] = 1 + random.IntN(8)
		}
		total, sum := len(lengths)+random.IntN(30), 0
		for _, batch := range chameleon.ProportionalBatches(total, lengths) {
			if sum += batch; batch < 1 {
				t.Fatalf("seed %d: %d over %v leaves a pipeline without any", seed, total, lengths)
			}
		}
		if sum != total {
			t.Fatalf("seed %d: %d over %v sums to %d", seed, total, lengths, sum)
		}
	}
}

// Figure 4: nine layers as 3+3+3 and as 2+2+2+3.
func TestGreedyRoundsFillThreeRounds(t *testing.T) {
	var holdings [][]layers.Range
	for _, stage := range []layers.Range{
		{First: 0, End: 3}, {First: 3, End: 6}, {First: 6, End: 9},
		{First: 0, End: 2}, {First: 2, End: 4}, {First: 4, End: 6}, {First: 6, End: 9},
	} {
		holdings = append(holdings, []layers.Range{stage})
	}
	if sum := chameleon.GreedyRounds(holdings, slices.Repeat([]int64{7}, 9)); sum != 21 {
		t.Fatalf("rounds of %d ns together, want three of 7", sum)
	}
}
