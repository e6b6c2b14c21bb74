package policy

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/reknit/reknit/services/planner/estimate"
)

// crewsOf are the nodes of a candidate's pipelines.
func crewsOf(c Candidate) (crews []string) {
	for _, pipeline := range c.Pipelines {
		var crew []string
		for _, stage := range pipeline.Stages {
			crew = append(crew, stage.Node)
		}
		crews = append(crews, strings.Join(crew, " "))
	}
	return crews
}

// lengths is a plan of pipelines of such lengths for six layers, 12 micro-batches: n1, n2 ... along the first, and so on.
func lengths(counts ...int) (pipelines []Pipeline) {
	node := 0
	for p, count := range counts {
		pipeline := Pipeline{MicroBatches: (12 - p) / len(counts)}
		for st := range count {
			pipeline.Stages = append(pipeline.Stages, grid(1, node+st+1, 6, 12)[0].Stages[node+st])
			pipeline.Stages[st].Layers = estimate.Range{First: st * 6 / count, End: (st + 1) * 6 / count}
		}
		pipelines, node = append(pipelines, pipeline), node+count
	}
	pipelines[0].MicroBatches = 12
	for _, other := range pipelines[1:] {
		pipelines[0].MicroBatches -= other.MicroBatches
	}
	return pipelines
}

func TestTheHitPipelineTakesTheTemplateOfItsNewLength(t *testing.T) {
	for what, c := range map[string]struct {
		nodes, memory int
		current       []Pipeline
		lost          []string
		want          []string
	}{
		"it shrinks by one":                     {6, 500, lengths(3, 3), []string{"n2"}, []string{"n1 n3", "n4 n5 n6"}},
		"nothing is lost, nothing changes":      {6, 500, lengths(3, 3), nil, []string{"n1 n2 n3", "n4 n5 n6"}},
		"too short, it borrows of the longest":  {6, 350, lengths(2, 4), []string{"n1"}, []string{"n2 n6", "n3 n4 n5"}},
		"too short, it takes an idle node":      {7, 350, lengths(2, 4), []string{"n1"}, []string{"n2 n7", "n3 n4 n5 n6"}},
		"nobody can lend: merged with shortest": {7, 350, lengths(2, 2, 3), []string{"n1", "n7"}, []string{"n3 n4 n2", "n5 n6"}},
		"all of a pipeline is gone":             {4, 350, lengths(2, 2), []string{"n1", "n2"}, []string{"n3 n4"}},
	} {
		s := usual(c.nodes)
		for i := range s.MemoryBytes {
			s.MemoryBytes[i] = int64(c.memory)
		}
		s.Current = c.current
		candidates, err := templates(s.lose(c.lost...))
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if got := crewsOf(candidates[0]); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
}

func TestTemplatesMoveNothingInPipelinesThatWereNotHit(t *testing.T) {
	s := beforeALoss()
	candidates, err := templates(s.lose("n2"))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(candidates[0].Pipelines[1].Stages, s.Current[1].Stages) {
		t.Fatalf("%v became %v", s.Current[1], candidates[0].Pipelines[1])
	}
}

func TestTooFewNodesForAnyTemplateIsSaid(t *testing.T) {
	s := usual(4)
	for i := range s.MemoryBytes {
		s.MemoryBytes[i] = 250 // two layers: three nodes at least
	}
	s.Current = lengths(4)
	s = s.lose("n1", "n2")
	if _, err := templates(s); err == nil || !strings.Contains(err.Error(), "nodeMemoryBytes is 250") {
		t.Fatalf("got %v", err)
	}
}
