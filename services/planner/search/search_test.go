package search

import (
	"errors"
	"fmt"
	"math/rand"
	"reflect"
	"slices"
	"testing"

	"github.com/reknit/reknit/services/planner/estimate"
)

func randomLayers(random *rand.Rand, n int) []estimate.Layer {
	alike := random.Intn(2) == 0
	layers := make([]estimate.Layer, n)
	for i := range layers {
		layers[i] = estimate.Layer{ForwardSeconds: 10, BackwardSeconds: 20, StaticBytes: 10, ActivationBytes: 2}
		if !alike {
			layers[i] = estimate.Layer{
				ForwardSeconds: float64(random.Intn(15)), BackwardSeconds: float64(1 + random.Intn(30)),
				StaticBytes: int64(random.Intn(20)), ActivationBytes: int64(random.Intn(5)),
			}
		}
	}
	return layers
}

func randomProblem(random *rand.Rand) Problem {
	p := Problem{
		Nodes: 1 + random.Intn(7), Layers: randomLayers(random, 1+random.Intn(7)), MicroBatches: 1 + random.Intn(9),
		TransferSeconds: float64(random.Intn(3) * random.Intn(8)), Splits: Family(random.Intn(2)),
		EveryNode: random.Intn(3) == 0, MinReplicas: random.Intn(4),
	}
	if random.Intn(3) > 0 {
		p.NodeMemoryBytes = int64(20 + random.Intn(100))
	}
	if random.Intn(3) == 0 {
		p.DataParallel = Limits{random.Intn(3), 0}
		p.PipelineLength = Limits{0, 1 + random.Intn(6)}
	}
	if random.Intn(2) == 0 {
		p.AllReduce = AllReduce{BytesPerSecond: 1 + float64(random.Intn(8)), LatencySeconds: float64(random.Intn(3))}
		for range p.Layers {
			p.AllReduce.GradientBytes = append(p.AllReduce.GradientBytes, int64(random.Intn(100)))
		}
	}
	return p
}

// slowSync is the all-reduce of the stage that has most to reduce.
func slowSync(p Problem, pipelines int, fullest int64) float64 {
	if p.AllReduce.GradientBytes == nil {
		return 0
	}
	return estimate.RingSeconds(fullest, pipelines, p.AllReduce.BytesPerSecond, p.AllReduce.LatencySeconds)
}

func fullestStage(p Problem, split []estimate.Range) int64 {
	fullest := int64(0)
	for _, stage := range split {
		bytes := int64(0)
		for layer := stage.First; layer < stage.End && p.AllReduce.GradientBytes != nil; layer++ {
			bytes += p.AllReduce.GradientBytes[layer]
		}
		fullest = max(fullest, bytes)
	}
	return fullest
}

// fullestStages are all that any stage may have to reduce.
func fullestStages(p Problem) []int64 {
	list := []int64{0}
	for first := range p.Layers {
		for end := first + 1; end <= len(p.Layers); end++ {
			list = append(list, fullestStage(p, []estimate.Range{{First: first, End: end}}))
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// slowSplits calls each with every split of the problem's family into so many stages.
func slowSplits(p Problem, stages int, each func([]estimate.Range)) {
	layers := len(p.Layers)
	var cut func(done []estimate.Range, first int)
	cut = func(done []estimate.Range, first int) {
		if len(done) == stages {
			if first == layers {
				each(done)
			}
			return
		}
		for end := first + 1; end <= layers; end++ {
			if size := end - first; p.Splits == Even && size != layers/stages && size != (layers+stages-1)/stages {
				continue
			}
			cut(append(slices.Clone(done), estimate.Range{First: first, End: end}), end)
		}
	}
	cut(nil, 0)
}

// slowPipeline is the time of the best split whose stages have no more than so much to reduce, or never.
func slowPipeline(p Problem, stages, microBatches int, fullest int64) float64 {
	best := never
	slowSplits(p, stages, func(split []estimate.Range) {
		peak := slices.Max(estimate.PeakBytes(p.Layers, split, microBatches))
		if fullestStage(p, split) <= fullest && (p.NodeMemoryBytes == 0 || peak <= p.NodeMemoryBytes) {
			stages := estimate.OfLayers(p.Layers, split, microBatches, p.TransferSeconds)
			best = min(best, estimate.OneForwardOneBackward(stages).MakespanSeconds)
		}
	})
	return best
}

// slowBest is the twin: every amount that a stage may have to reduce, every multiset of lengths, every distribution of
// the batch, every split.
func slowBest(p Problem) float64 {
	best := [2]float64{never, never} // with enough replicas, without
	for _, fullest := range fullestStages(p) {
		under := slowBestUnder(p, fullest)
		best[0], best[1] = min(best[0], under[0]), min(best[1], under[1])
	}
	if best[0] < never {
		return best[0]
	}
	return best[1]
}

func slowBestUnder(p Problem, fullest int64) [2]float64 {
	longest, widest := p.PipelineLength.Most, p.DataParallel.Most
	if longest == 0 {
		longest = p.Nodes
	}
	if widest == 0 {
		widest = p.Nodes
	}
	times := map[[2]int]float64{}
	time := func(length, microBatches int) float64 {
		key := [2]int{length, microBatches}
		if _, ok := times[key]; !ok {
			times[key] = slowPipeline(p, length, microBatches, fullest)
		}
		return times[key]
	}
	best := [2]float64{never, never} // with enough replicas, without
	var add func(pipelines, length, nodes, batch int, slowest float64)
	add = func(pipelines, length, nodes, batch int, slowest float64) {
		if batch == 0 && pipelines >= p.DataParallel.Least && (nodes == 0 || !p.EveryNode) {
			few := 0
			if pipelines < p.MinReplicas {
				few = 1
			}
			best[few] = min(best[few], slowest+slowSync(p, pipelines, fullest))
		}
		if pipelines == widest {
			return
		}
		for ; length <= min(longest, nodes); length++ {
			for b := 1; b <= batch; b++ {
				add(pipelines+1, length, nodes-length, batch-b, max(slowest, time(length, b)))
			}
		}
	}
	add(0, max(1, p.PipelineLength.Least), p.Nodes, p.MicroBatches, 0)
	return best
}

// check reports what is wrong with a plan for a problem.
func check(p Problem, plan Plan) error {
	batch, slowest, fullest := 0, 0.0, int64(0)
	for j, pipeline := range plan.Pipelines {
		if pipeline.MicroBatches < 1 {
			return fmt.Errorf("pipeline %d has no micro-batches", j)
		}
		end := 0
		for _, stage := range pipeline.Stages {
			if stage.First != end || stage.End <= end {
				return fmt.Errorf("pipeline %d: stages %v are not contiguous", j, pipeline.Stages)
			}
			end = stage.End
		}
		if end != len(p.Layers) {
			return fmt.Errorf("pipeline %d holds %d of %d layers", j, end, len(p.Layers))
		}
		peak := slices.Max(estimate.PeakBytes(p.Layers, pipeline.Stages, pipeline.MicroBatches))
		if p.NodeMemoryBytes > 0 && peak > p.NodeMemoryBytes {
			return fmt.Errorf("pipeline %d needs %d bytes of %d", j, peak, p.NodeMemoryBytes)
		}
		stages := estimate.OfLayers(p.Layers, pipeline.Stages, pipeline.MicroBatches, p.TransferSeconds)
		slowest = max(slowest, estimate.OneForwardOneBackward(stages).MakespanSeconds)
		batch, fullest = batch+pipeline.MicroBatches, max(fullest, fullestStage(p, pipeline.Stages))
	}
	slowest += slowSync(p, len(plan.Pipelines), fullest)
	if batch != p.MicroBatches || plan.Nodes() > p.Nodes || p.EveryNode && plan.Nodes() < p.Nodes ||
		slowest != plan.StepSeconds {
		return fmt.Errorf("%d micro-batches on %d nodes in %v seconds, said to take %v", batch, plan.Nodes(), slowest,
			plan.StepSeconds)
	}
	return nil
}

// best is the answer to a problem, or none where the best time is never. An error says how it is not what the best time
// says, or which of those considered is no plan of its problem.
func best(p Problem, want float64, of func(Plan) Problem) (got Result, feasible bool, err error) {
	got, err = Best(p)
	switch {
	case want == never && errors.Is(err, ErrInfeasible):
		return got, false, nil
	case err != nil:
		return got, false, fmt.Errorf("want %v: %w", want, err)
	case got.StepSeconds != want || got.LowerBoundSeconds != want:
		return got, false, fmt.Errorf("got %v (bound %v), want %v", got.StepSeconds, got.LowerBoundSeconds, want)
	}
	for i, plan := range got.Considered {
		if err := check(of(plan), plan); err != nil {
			return got, false, fmt.Errorf("candidate %d: %w", i, err)
		}
	}
	return got, true, nil
}

func TestNoPlanIsFasterThanTheAnswer(t *testing.T) {
	const seed = 1
	random := rand.New(rand.NewSource(seed))
	feasible := 0
	for round := range 2500 {
		p := randomProblem(random)
		got, isFeasible, err := best(p, slowBest(p), func(Plan) Problem { return p })
		if err != nil {
			t.Fatalf("seed %d round %d: %+v: %v", seed, round, p, err)
		}
		if !isFeasible {
			continue
		}
		feasible++
		if !reflect.DeepEqual(got.Considered[0], got.Plan) {
			t.Fatalf("seed %d round %d: the answer is not the first of those considered", seed, round)
		}
	}
	if feasible < 1000 {
		t.Fatalf("seed %d: only %d problems were feasible", seed, feasible)
	}
}

func TestNoCandidateClaimsMoreThanItsDegreeAllows(t *testing.T) {
	const seed = 2
	random := rand.New(rand.NewSource(seed))
	rivals, best := 0, 0
	for round := range 400 {
		p := randomProblem(random)
		p.MinReplicas = 0
		got, err := Best(p)
		if err != nil {
			continue
		}
		for _, plan := range got.Considered[1:] {
			only := p
			only.DataParallel = Limits{len(plan.Pipelines), len(plan.Pipelines)}
			want := slowBest(only)
			if plan.StepSeconds < want || plan.StepSeconds < got.StepSeconds {
				t.Fatalf("seed %d round %d: %+v: %d pipelines take %v, but at least %v", seed, round, p,
					len(plan.Pipelines), plan.StepSeconds, want)
			}
			rivals++
			if plan.StepSeconds == want {
				best++
			}
		}
	}
	if rivals < 100 || best < rivals*8/10 {
		t.Fatalf("seed %d: %d of %d rivals are the best of their degree", seed, best, rivals)
	}
}

func bigProblem(nodes int) Problem {
	layers := make([]estimate.Layer, 32)
	for i := range layers {
		layers[i] = estimate.Layer{ForwardSeconds: 12.9, BackwardSeconds: 25.8, StaticBytes: 3240, ActivationBytes: 600}
		if i%5 == 0 {
			layers[i].BackwardSeconds += 3
		}
	}
	return Problem{Nodes: nodes, NodeMemoryBytes: 64000, Layers: layers, MicroBatches: 128, TransferSeconds: 2}
}

func TestAnAddedNodeNeverMakesTheBestPlanSlower(t *testing.T) {
	before := never
	for nodes := 3; nodes <= 48; nodes++ {
		result, err := Best(bigProblem(nodes))
		if err != nil {
			t.Fatal(err)
		}
		if result.StepSeconds > before {
			t.Fatalf("%d nodes: %v after %v", nodes, result.StepSeconds, before)
		}
		before = result.StepSeconds
	}
}

func TestTheSameProblemHasTheSamePlan(t *testing.T) {
	first, _ := Best(bigProblem(61))
	second, _ := Best(bigProblem(61))
	if !reflect.DeepEqual(first, second) {
		t.Fatal("two searches, two results")
	}
}

func TestALowerBoundHoldsEvenWhereTheSearchGivesUp(t *testing.T) {
	const seed = 3
	random := rand.New(rand.NewSource(seed))
	gaveUp := 0
	for round := range 5000 {
		p, err := randomProblem(random).normalised()
		if err != nil {
			continue
		}
		p.MinReplicas = 1
		s := newSearcher(p)
		s.effort = 1
		degrees := s.degrees(p.DataParallel.Least, p.DataParallel.Most)
		mix, ok := s.fastestOf(degrees, false)
		if !ok || !s.gaveUp {
			continue
		}
		gaveUp++
		plan := s.build(mix)
		bound, _ := s.lowerBound(mix.step(), degrees)
		best := slowBest(p)
		if bound > best || plan.StepSeconds < best {
			t.Fatalf("seed %d round %d: %+v: bound %v, best %v, found %v", seed, round, p, bound, best,
				plan.StepSeconds)
		}
	}
	if gaveUp < 50 {
		t.Fatalf("seed %d: only %d searches gave up", seed, gaveUp)
	}
}

func TestFewerReplicasAreUsedOnlyWhereNothingElseIsPossible(t *testing.T) {
	p := Problem{Nodes: 4, Layers: make([]estimate.Layer, 4), MicroBatches: 4, MinReplicas: 2, TransferSeconds: 1}
	for i := range p.Layers {
		p.Layers[i] = estimate.Layer{ForwardSeconds: 1, BackwardSeconds: 2, StaticBytes: 10}
	}
	p.NodeMemoryBytes = 20
	if result, err := Best(p); err != nil || len(result.Pipelines) != 2 {
		t.Fatalf("two layers fit a node: got %+v, %v, want two pipelines", result, err)
	}
	p.NodeMemoryBytes = 10
	if result, err := Best(p); err != nil || len(result.Pipelines) != 1 {
		t.Fatalf("one layer fits a node: got %+v, %v, want one pipeline", result, err)
	}
}

func BenchmarkBest(b *testing.B) {
	for _, nodes := range []int{32, 256, 2048, 16384} {
		b.Run(fmt.Sprint(nodes), func(b *testing.B) {
			p := bigProblem(nodes)
			p.MicroBatches = 2 * nodes
			for b.Loop() {
				if _, err := Best(p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// As fast with more pipelines keeps more replicas of each layer, and with more nodes leaves none idle.
func TestOfEquallyFastPlansTheOneWithMoreNodesAndThenMorePipelinesIsTaken(t *testing.T) {
	layer := estimate.Layer{ForwardSeconds: 1, BackwardSeconds: 2}
	for microBatches := 17; microBatches <= 24; microBatches++ {
		result, err := Best(Problem{Nodes: 16, Layers: []estimate.Layer{layer, layer}, MicroBatches: microBatches})
		if err != nil || len(result.Pipelines) != 16 || result.StepSeconds != 12 {
			t.Errorf("%d micro-batches: %d pipelines, step %v, error %v; expected 16 and 12", microBatches, len(result.Pipelines),
				result.StepSeconds, err)
		}
	}
	wide := Problem{Nodes: 3, NodeMemoryBytes: 109, MicroBatches: 2, TransferSeconds: 2}
	for range 10 {
		wide.Layers = append(wide.Layers, estimate.Layer{ForwardSeconds: 1, BackwardSeconds: 2, StaticBytes: 10, ActivationBytes: 2})
	}
	if result, err := Best(wide); err != nil || result.Nodes() != 3 || result.StepSeconds != 46 {
		t.Errorf("%d nodes, step %v, error %v; expected 3 and 46", result.Nodes(), result.StepSeconds, err)
	}
}
