package recovery_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/reknit/reknit/services/planner/estimate"
	"github.com/reknit/reknit/services/planner/policy"
	"github.com/reknit/reknit/tests/papers/recovery"
)

// cluster is a job of six equal layers, 12 micro-batches, on pipelines of such lengths: n1, n2 ... along the first, and
// so on. Nodes have so much memory, and those in idle have no place.
func cluster(memory int64, idle int, lengths ...int) policy.Situation {
	s := policy.Situation{
		MicroBatches: 12, GlobalBatch: 12, MinReplicas: 2, SecondsBetweenFailures: 3600, SwitchSeconds: 0.05,
		Network: policy.Network{TransferSeconds: 0.001, BytesPerSecond: 1e9, LatencySeconds: 0.0005},
	}
	for range 6 {
		s.Layers = append(s.Layers,
			estimate.Layer{ForwardSeconds: 1, BackwardSeconds: 2, StaticBytes: 100, ActivationBytes: 1})
		s.StateBytes, s.GradientBytes = append(s.StateBytes, 80), append(s.GradientBytes, 20)
	}
	add := func() string {
		s.Nodes, s.MemoryBytes = append(s.Nodes, fmt.Sprintf("n%d", len(s.Nodes)+1)), append(s.MemoryBytes, memory)
		return s.Nodes[len(s.Nodes)-1]
	}
	left := s.MicroBatches
	for p, length := range lengths {
		pipeline := policy.Pipeline{MicroBatches: left / (len(lengths) - p)}
		left -= pipeline.MicroBatches
		for st := range length {
			layers := estimate.Range{First: st * 6 / length, End: (st + 1) * 6 / length}
			pipeline.Stages = append(pipeline.Stages, policy.Stage{Node: add(), Layers: layers})
		}
		s.Current = append(s.Current, pipeline)
	}
	for range idle {
		add()
	}
	return s
}

// without takes nodes away whose places the plan in force still names.
func without(s policy.Situation, lost ...string) policy.Situation {
	s.Nodes = slices.DeleteFunc(slices.Clone(s.Nodes), func(node string) bool { return slices.Contains(lost, node) })
	s.MemoryBytes = s.MemoryBytes[:len(s.Nodes)]
	return s
}

// crews are the nodes of a candidate's pipelines.
func crews(c policy.Candidate) (crews []string) {
	for _, pipeline := range c.Pipelines {
		var crew []string
		for _, stage := range pipeline.Stages {
			crew = append(crew, stage.Node)
		}
		crews = append(crews, strings.Join(crew, " "))
	}
	return crews
}

func TestTheHitPipelineTakesTheTemplateOfItsNewLength(t *testing.T) {
	for what, c := range map[string]struct {
		before policy.Situation
		lost   []string
		want   []string
	}{
		"it shrinks by one":                    {cluster(500, 0, 3, 3), []string{"n2"}, []string{"n1 n3", "n4 n5 n6"}},
		"nothing is lost, nothing changes":     {cluster(500, 0, 3, 3), nil, []string{"n1 n2 n3", "n4 n5 n6"}},
		"too short, it borrows of the longest": {cluster(350, 0, 2, 4), []string{"n1"}, []string{"n2 n6", "n3 n4 n5"}},
		"too short, it takes an idle node": {
			cluster(350, 1, 2, 4), []string{"n1"}, []string{"n2 n7", "n3 n4 n5 n6"},
		},
		"nobody can lend: merged with shortest": {
			cluster(350, 0, 2, 2, 3), []string{"n1", "n7"}, []string{"n3 n4 n2", "n5 n6"},
		},
		"all of a pipeline is gone": {cluster(350, 0, 2, 2), []string{"n1", "n2"}, []string{"n3 n4"}},
	} {
		candidate, err := recovery.Templates(without(c.before, c.lost...))
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if got := crews(candidate); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
}

func TestTemplatesMoveNothingInPipelinesThatWereNotHit(t *testing.T) {
	s := cluster(500, 0, 3, 3)
	candidate, err := recovery.Templates(without(s, "n2"))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(candidate.Pipelines[1].Stages, s.Current[1].Stages) {
		t.Fatalf("%v became %v", s.Current[1], candidate.Pipelines[1])
	}
}

func TestTooFewNodesForAnyTemplateIsSaid(t *testing.T) {
	s := without(cluster(250, 0, 4), "n1", "n2") // two layers a node: three nodes at least
	if _, err := recovery.Templates(s); err == nil || !strings.Contains(err.Error(), "250 B of memory a node") {
		t.Fatalf("got %v", err)
	}
}

func TestARestartReadsAllLayersAgainThoughNothingWasLost(t *testing.T) {
	s := cluster(500, 0, 3, 3)
	s.Network.BytesPerSecond = 10
	candidates, err := recovery.Restart(s, 30)
	if err != nil {
		t.Fatal(err)
	}
	for _, candidate := range candidates {
		longest := 6 / len(candidate.Pipelines[0].Stages) // no split of six equal layers has a stage with fewer
		if least := 0.05 + 30 + float64(longest*80)/10; candidate.TransitionSeconds < least {
			t.Errorf("%s: %v s of transition, want at least %v", candidate.Shape(), candidate.TransitionSeconds, least)
		}
	}
}

func TestARestartHasEqualPipelinesOfOneSplitAndTheFastestIsFirst(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 5))
		s := cluster(400+random.Int64N(400), random.IntN(9), 2+random.IntN(3), 2+random.IntN(3))
		candidates, err := recovery.Restart(s, 30)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for i, candidate := range candidates {
			first := candidate.Pipelines[0]
			for _, pipeline := range candidate.Pipelines {
				sameSplit := slices.EqualFunc(pipeline.Stages, first.Stages,
					func(a, b policy.Stage) bool { return a.Layers == b.Layers })
				if more := first.MicroBatches - pipeline.MicroBatches; !sameSplit || more > 1 || more < -1 {
					t.Fatalf("seed %d: %v beside %v", seed, pipeline, first)
				}
			}
			if i > 0 && candidate.StepSeconds < candidates[i-1].StepSeconds {
				t.Fatalf("seed %d: %v s after %v", seed, candidate.StepSeconds, candidates[i-1].StepSeconds)
			}
		}
	}
}
