package search

import (
	"math/rand"
	"testing"

	"github.com/reknit/reknit/services/planner/estimate"
)

func TestNoSplitIsFasterThanTheBounds(t *testing.T) {
	const seed = 4
	random := rand.New(rand.NewSource(seed))
	tight := 0
	for round := range 3000 {
		p := Problem{
			Layers: randomLayers(random, 1+random.Intn(10)), TransferSeconds: float64(random.Intn(2) * random.Intn(9)),
		}
		stages, microBatches := 1+random.Intn(len(p.Layers)), 1+random.Intn(20)
		p.NodeMemoryBytes, p.MicroBatches = 1<<40, microBatches
		m := newModel(p, noLimit, new(paths), new(int))
		sh := m.shape(stages, microBatches)
		sh.fill()
		sh.fillRest()
		starts := randomStarts(random, len(p.Layers), stages)
		seconds, bound := m.makespan(starts, microBatches), 0.0
		for s := range stages {
			bound = max(bound, m.alone(sh, s, starts[s], starts[s+1]), m.together(sh, starts, s, starts[s+1]))
		}
		if bound > seconds || m.floor(stages, microBatches) > seconds {
			t.Fatalf("seed %d round %d: %+v split at %v, %d micro-batches: %v, but bounds say at least %v and %v",
				seed, round, p, starts, microBatches, seconds, bound, m.floor(stages, microBatches))
		}
		if bound == seconds {
			tight++
		}
	}
	if tight < 1500 {
		t.Errorf("seed %d: the bounds are exact in %d of 3000 splits only", seed, tight)
	}
}

func randomStarts(random *rand.Rand, layers, stages int) []int {
	starts := []int{0}
	for s := 1; s < stages; s++ {
		left := layers - starts[s-1] - (stages - s) // at most, with one layer for each stage to come
		starts = append(starts, starts[s-1]+1+random.Intn(left))
	}
	return append(starts, layers)
}

// slowMix tries every count of every size.
func slowMix(capacity []int, pipelines, size, need int) bool {
	if len(capacity) == 0 {
		return pipelines == 0 && size == 0 && need <= 0
	}
	largest := len(capacity) - 1
	for count := 0; count <= pipelines && count*largest <= size; count++ {
		if count > 0 && capacity[largest] == 0 {
			return false
		}
		if slowMix(capacity[:largest], pipelines-count, size-count*largest, need-count*capacity[largest]) {
			return true
		}
	}
	return false
}

func TestAMixIsFoundWhereverThereIsOne(t *testing.T) {
	const seed = 5
	random := rand.New(rand.NewSource(seed))
	possible, hard := 0, 0
	for round := range 20000 {
		capacity := make([]int, 1+random.Intn(7))
		for i := range capacity {
			if random.Intn(3) > 0 {
				capacity[i] = 1 + random.Intn(6+5*i)
			}
		}
		pipelines := 1 + random.Intn(7)
		size := random.Intn(pipelines * len(capacity))
		need := 1 + random.Intn(pipelines*12)
		want, counts := slowMix(capacity, pipelines, size, need), mix(capacity, pipelines, size, need)
		if (counts != nil) != want {
			t.Fatalf("seed %d round %d: %v, %d pipelines, size %d, need %d: got %v, want one: %v", seed, round,
				capacity, pipelines, size, need, counts, want)
		}
		if !want {
			continue
		}
		possible++
		number, total := 0, 0
		for i, count := range counts {
			number, total = number+count, total+i*count
		}
		if number != pipelines || total != size || !enough(capacity, counts, need) {
			t.Fatalf("seed %d round %d: %v, %d pipelines, size %d, need %d: got %v", seed, round, capacity, pipelines,
				size, need, counts)
		}
		if two, _ := pairs(capacity, pipelines, size, need); two == nil &&
			even(capacity, pipelines, size, need) == nil {
			hard++
		}
	}
	if possible < 2000 || hard < 10 {
		t.Fatalf("seed %d: %d possible, %d of them beyond two sizes: the test tests little", seed, possible, hard)
	}
}

// slowBatches is the best step time over every distribution.
func slowBatches(total, pipelines int, seconds func(pipeline, microBatches int) float64) float64 {
	if pipelines == 1 {
		return seconds(0, total)
	}
	best := never
	for b := 1; b <= total-pipelines+1; b++ {
		best = min(best, max(seconds(pipelines-1, b), slowBatches(total-b, pipelines-1, seconds)))
	}
	return best
}

func TestNoDistributionIsFasterThanTheOptimalOne(t *testing.T) {
	const seed = 6
	random := rand.New(rand.NewSource(seed))
	for round := range 300 {
		pipelines := 1 + random.Intn(4)
		total := pipelines + random.Intn(12)
		times := make([][]float64, pipelines)
		for j := range times {
			times[j] = make([]float64, total+2)
			for b := 1; b < len(times[j]); b++ {
				times[j][b] = times[j][b-1] + float64(random.Intn(9))
			}
		}
		seconds := func(j, b int) float64 { return times[j][b] }
		sum, slowest := 0, 0.0
		for j, b := range OptimalBatches(total, pipelines, seconds) {
			sum += b
			slowest = max(slowest, seconds(j, b))
		}
		if want := slowBatches(total, pipelines, seconds); sum != total || slowest != want {
			t.Fatalf("seed %d round %d: %v: %d micro-batches in %v, want %d in %v", seed, round, times, sum, slowest,
				total, want)
		}
	}
}

func TestTheSplitOfAPipelineIsTheBestOfItsFamily(t *testing.T) {
	const seed = 8
	random := rand.New(rand.NewSource(seed))
	for round := range 400 {
		layers := randomLayers(random, 2+random.Intn(9))
		stages := 1 + random.Intn(len(layers))
		p := Problem{
			Nodes: stages, Layers: layers, MicroBatches: 1 + random.Intn(12), TransferSeconds: float64(random.Intn(6)),
			DataParallel: Limits{1, 1}, PipelineLength: Limits{stages, stages}, Splits: Family(random.Intn(2)),
		}
		if random.Intn(2) == 0 {
			p.NodeMemoryBytes = int64(30 + random.Intn(120))
		}
		want := slowPipeline(p, stages, p.MicroBatches, noLimit)
		got, err := Best(p)
		if want == never && err == nil || want < never && got.StepSeconds != want {
			t.Fatalf("seed %d round %d: %+v: got %v, %v, want %v", seed, round, p, got.StepSeconds, err, want)
		}
	}
}

func TestLayersMayBeUnlikeInTimeAndAlikeInNothing(t *testing.T) {
	// A large last layer (a language model's head): the stages before it take more of the others.
	p := Problem{Nodes: 2, MicroBatches: 8, DataParallel: Limits{1, 1}, PipelineLength: Limits{2, 2}}
	for _, forward := range []float64{1, 1, 1, 1, 1, 5} {
		p.Layers = append(p.Layers, estimate.Layer{ForwardSeconds: forward, BackwardSeconds: 2 * forward})
	}
	result, err := Best(p)
	if err != nil || result.Pipelines[0].Stages[0] != (estimate.Range{First: 0, End: 5}) {
		t.Fatalf("got %+v, %v", result.Plan, err)
	}
}
