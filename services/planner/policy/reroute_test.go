package policy

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/reknit/reknit/services/planner/estimate"
)

// cut is a pipeline of nodes named after it, whose stages end at these layers.
func cut(name string, microBatches int, ends ...int) Pipeline {
	p, first := Pipeline{MicroBatches: microBatches}, 0
	for i, end := range ends {
		p.Stages = append(p.Stages, Stage{fmt.Sprint(name, i), estimate.Range{First: first, End: end}})
		first = end
	}
	return p
}

// under is a situation of whole-second layers in which these pipelines are in force.
func under(layers int, pipelines ...Pipeline) Situation {
	s := usual(0)
	s.Network, s.Layers, s.MicroBatches = Network{}, nil, 0
	for range layers {
		s.Layers = append(s.Layers, estimate.Layer{ForwardSeconds: 1, BackwardSeconds: 2, StaticBytes: 100, ActivationBytes: 1})
	}
	s.StateBytes, s.GradientBytes = make([]int64, layers), make([]int64, layers)
	for _, pipeline := range pipelines {
		s.MicroBatches += pipeline.MicroBatches
		for _, stage := range pipeline.Stages {
			s.Nodes, s.MemoryBytes = append(s.Nodes, stage.Node), append(s.MemoryBytes, 1<<40)
		}
	}
	s.GlobalBatch, s.Current = s.MicroBatches, pipelines
	return s
}

func TestInUnequalPipelinesEachLayerIsTakenOverByWhoHoldsIt(t *testing.T) {
	s := under(6, cut("a", 4, 3, 6), cut("b", 4, 2, 6)).lose("a0")
	candidates, err := reroute(s)
	if err != nil {
		t.Fatal(err)
	}
	want := []Reroute{{From: "a0", To: "b0", MicroBatches: 4}, {From: "a0", To: "b1", MicroBatches: 4}}
	if got := candidates[0].Reroutes; !slices.Equal(got, want) {
		t.Errorf("reroutes %+v, want %+v", got, want)
	}
	// b takes its own 4 micro-batches in 4 layers' time each, one more for the ramp of two, and 4 more of two layers.
	own := estimate.OneForwardOneBackward(s.pipeline(s.wires(), s.Current[1])).MakespanSeconds
	if want := own + 4*2*3; candidates[0].StepSeconds != want {
		t.Errorf("a step of %v s, want %v", candidates[0].StepSeconds, want)
	}
}

// One of two survivors is nearly idle. It takes the layers that both hold; only the other has the rest.
func TestTheLessBusySurvivorTakesMoreLayersAsWell(t *testing.T) {
	s := under(4, cut("a", 1, 4), cut("b", 7, 2, 4), cut("c", 1, 3, 4)).lose("a0")
	candidates, err := reroute(s)
	if err != nil {
		t.Fatal(err)
	}
	want := []Reroute{{From: "a0", To: "c0", MicroBatches: 1}, {From: "a0", To: "c1", MicroBatches: 1}}
	if got := candidates[0].Reroutes; !slices.Equal(got, want) {
		t.Errorf("reroutes %+v, want %+v", got, want)
	}
}

// Either of two survivors with two layers each would be the last alone.
func TestWhereThatIsSoonerAMicroBatchPassesLayersOfOneRunAtSeveralSurvivors(t *testing.T) {
	s := under(3, cut("a", 1, 3), cut("b", 1, 2, 3), cut("c", 1, 2, 3)).lose("a0")
	candidates, err := reroute(s)
	if err != nil {
		t.Fatal(err)
	}
	want := []Reroute{
		{From: "a0", To: "b0", MicroBatches: 1, Layers: estimate.Range{First: 0, End: 1}},
		{From: "a0", To: "c0", MicroBatches: 1, Layers: estimate.Range{First: 1, End: 2}},
		{From: "a0", To: "b1", MicroBatches: 1},
	}
	if got := candidates[0].Reroutes; !slices.Equal(got, want) {
		t.Errorf("reroutes %+v, want %+v", got, want)
	}
}

// rerouted is a drawn layout of unequal pipelines, and some of its nodes that are lost.
func rerouted(random *rand.Rand) (Situation, []string) {
	layers := 1 + random.IntN(4)
	var pipelines []Pipeline
	for _, name := range []string{"a", "b", "c"}[:2+random.IntN(2)] {
		var ends []int
		for end := 1; end < layers; end++ {
			if random.IntN(2) == 0 {
				ends = append(ends, end)
			}
		}
		pipelines = append(pipelines, cut(name, 1+random.IntN(3), append(ends, layers)...))
	}
	s := under(layers, pipelines...)
	for i := range s.Layers {
		s.Layers[i].ForwardSeconds, s.Layers[i].BackwardSeconds = float64(random.IntN(5)), float64(1+random.IntN(9))
	}
	if random.IntN(2) == 0 {
		for range s.Nodes {
			s.Speed = append(s.Speed, float64(1+random.IntN(2)))
		}
	}
	var lost []string
	for _, at := range random.Perm(len(s.Nodes))[:1+random.IntN(min(3, len(s.Nodes)-1))] {
		lost = append(lost, s.Nodes[at])
	}
	return s.lose(lost...), lost
}

// The twin takes every survivor for every layer and lost micro-batch (for whole stages, where all pipelines are divided
// alike), and the pipelines' own times from the longest path.
func TestTheStepOfARerouteIsTheLeastOfAll(t *testing.T) {
	compared, unequal := 0, 0
	for seed := range uint64(2000) {
		s, lost := rerouted(rand.New(rand.NewPCG(seed, 11)))
		candidates, err := reroute(s)
		want, possible := leastRerouted(s)
		if !possible {
			if err == nil || !strings.Contains(err.Error(), "no survivor holds") {
				t.Fatalf("seed %d: without %v: %+v, %v", seed, lost, candidates, err)
			}
			continue
		}
		if err != nil || math.Abs(candidates[0].StepSeconds-want) > 1e-9*want {
			t.Fatalf("seed %d: %+v without %v: got %+v, %v, want a step of %v s", seed, s.Current, lost, candidates, err, want)
		}
		for _, rule := range []func(Situation, Candidate) error{reroutesWhatIsLost, fitsInMemory, tellsTheTime} {
			if err := rule(s, candidates[0]); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		compared++
		if _, alike := s.runs(); !alike {
			unequal++
		}
	}
	if compared < 1000 || unequal < 500 {
		t.Fatalf("%d compared, %d of unequal pipelines", compared, unequal)
	}
}

func leastRerouted(s Situation) (seconds float64, possible bool) {
	units := make([]estimate.Range, 0, len(s.Layers))
	if runs, alike := s.runs(); alike {
		units = runs
	} else {
		for layer := range s.Layers {
			units = append(units, estimate.Range{First: layer, End: layer + 1})
		}
	}
	extra, own := map[string]float64{}, make([]float64, len(s.Current))
	for p, pipeline := range s.Current {
		own[p] = estimate.OneForwardOneBackward(s.slowPipeline(pipeline, members(s.Current)[p])).MakespanSeconds
	}
	seconds = math.Inf(1)
	var take func(unit, p, left int)
	take = func(unit, p, left int) {
		if unit == len(units) {
			step := 0.0
			for p, pipeline := range s.Current {
				longest := 0.0
				for _, stage := range pipeline.Stages {
					longest = max(longest, extra[stage.Node])
				}
				step = max(step, own[p]+longest)
			}
			seconds, possible = min(seconds, step), true
			return
		}
		if left == 0 {
			for p++; p < len(s.Current); p++ {
				if !slices.Contains(s.Nodes, s.at(p, units[unit]).Node) {
					take(unit, p, s.Current[p].MicroBatches)
					return
				}
			}
			take(unit+1, -1, 0)
			return
		}
		for q := range s.Current {
			stage := s.at(q, units[unit])
			if !slices.Contains(s.Nodes, stage.Node) {
				continue
			}
			timed := s.slowPipeline(Pipeline{Stages: []Stage{stage}}, estimate.Member{Stages: []estimate.Range{units[unit]}})
			work := timed.ForwardSeconds[0] + timed.BackwardSeconds[0]
			extra[stage.Node] += work
			take(unit, p, left-1)
			extra[stage.Node] -= work
		}
	}
	take(0, -1, 0)
	return seconds, possible
}

// at is the stage of a pipeline that holds some layers.
func (s Situation) at(p int, layers estimate.Range) Stage {
	for _, stage := range s.Current[p].Stages {
		if stage.Layers.Shared(layers) == layers.Len() {
			return stage
		}
	}
	return Stage{}
}
