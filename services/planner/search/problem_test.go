package search

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/reknit/reknit/services/planner/estimate"
)

func TestAnImpossibleProblemNamesTheLimit(t *testing.T) {
	layer := estimate.Layer{ForwardSeconds: 1, BackwardSeconds: 2, StaticBytes: 10, ActivationBytes: 1}
	good := Problem{Nodes: 6, Layers: []estimate.Layer{layer, layer, layer}, MicroBatches: 6}
	for _, test := range []struct {
		name, word string
		change     func(*Problem)
	}{
		{"longer than the model", "at least 4 stages,", func(p *Problem) { p.PipelineLength.Least = 4 }},
		{"more pipelines than micro-batches", "at least 7 pipelines,", func(p *Problem) { p.DataParallel.Least = 7 }},
		{"too few nodes", "3 x 3 stages", func(p *Problem) { p.DataParallel.Least, p.PipelineLength.Least = 3, 3 }},
		{"empty lengths", "3 to 2 stages:", func(p *Problem) { p.PipelineLength = Limits{3, 2} }},
		{"empty degrees", "3 to 2 pipelines:", func(p *Problem) { p.DataParallel = Limits{3, 2} }},
		{"layers too large", "9 B of memory a node", func(p *Problem) { p.NodeMemoryBytes = 9 }},
		{"pipelines too long for the nodes", "3 x 3 stages",
			func(p *Problem) { p.NodeMemoryBytes, p.DataParallel.Least = 13, 3 }},
		{"a node too many", "everyNode", func(p *Problem) { p.EveryNode, p.MicroBatches, p.Nodes = true, 1, 5 }},
		{"batch too large", "memory", func(p *Problem) {
			p.Nodes, p.PipelineLength.Least, p.NodeMemoryBytes = 2, 2, 17
			p.Layers = []estimate.Layer{{StaticBytes: 10, ActivationBytes: 5}, {StaticBytes: 10, ActivationBytes: 5}}
		}},
	} {
		p := good
		test.change(&p)
		result, err := Best(p)
		if !errors.Is(err, ErrInfeasible) || !strings.Contains(err.Error(), test.word+" ") {
			t.Errorf("%s: got %+v, %q, want an error about %s", test.name, result.Plan, err, test.word)
		}
	}
}

func TestABadFieldIsNamed(t *testing.T) {
	good := Problem{Nodes: 1, Layers: []estimate.Layer{{}}, MicroBatches: 1}
	for word, change := range map[string]func(*Problem){
		"nodes":                func(p *Problem) { p.Nodes = 0 },
		"layers":               func(p *Problem) { p.Layers = nil },
		"layers[0]":            func(p *Problem) { p.Layers = []estimate.Layer{{BackwardSeconds: never}} },
		"microBatches":         func(p *Problem) { p.MicroBatches = 0 },
		"nodeMemoryBytes":      func(p *Problem) { p.NodeMemoryBytes = -1 },
		"transferSeconds":      func(p *Problem) { p.TransferSeconds = -1 },
		"dataParallel.most":    func(p *Problem) { p.DataParallel.Most = -1 },
		"pipelineLength.least": func(p *Problem) { p.PipelineLength.Least = -1 },
		"minReplicas":          func(p *Problem) { p.MinReplicas = -1 },
	} {
		p := good
		change(&p)
		if _, err := Best(p); err == nil || !strings.Contains(err.Error(), word+" is") {
			t.Errorf("got %v, want an error about %s", err, word)
		}
	}
	if result, err := Best(good); err != nil || result.StepSeconds != 0 {
		t.Errorf("a layer that costs nothing: got %+v, %v", result, err)
	}
}

// A byte less than the memory that is named as needed is too little, and that much is enough.
func TestTheMemoryThatIsNamedIsTheLeastThatIsEnough(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 2))
	for range 50 {
		p := Problem{Nodes: 3, MicroBatches: 1, PipelineLength: Limits{Most: 1 + random.IntN(3)}, NodeMemoryBytes: 1}
		for range 3 + random.IntN(5) {
			p.Layers = append(p.Layers, estimate.Layer{StaticBytes: 2 + random.Int64N(1000), ActivationBytes: random.Int64N(100), ForwardSeconds: 1})
		}
		normalised, err := p.normalised()
		if err != nil {
			t.Fatal(err)
		}
		p.NodeMemoryBytes = newSearcher(normalised).leastMemory()
		if _, err := Best(p); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
		if p.NodeMemoryBytes--; p.NodeMemoryBytes > 0 {
			if _, err := Best(p); !errors.Is(err, ErrInfeasible) {
				t.Errorf("%+v: error %v, expected that there is too little memory", p, err)
			}
		}
	}
}
