package policy

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

func TestRenamingNodesChangesNothingButTheNames(t *testing.T) {
	for seed := range uint64(300) {
		s := randomSituation(rand.New(rand.NewPCG(seed, 4)))
		found, err := Choose(s)
		renamed, renamedErr := Choose(s.renamed())
		if err != nil {
			if renamedErr == nil {
				t.Fatalf("seed %d: renamed, there is a plan, where there was none: %v", seed, err)
			}
			continue
		}
		for i := range found {
			found[i] = found[i].renamed()
		}
		if !reflect.DeepEqual(found, renamed) {
			t.Fatalf("seed %d: %v, renamed %v", seed, found[0], renamed[0])
		}
	}
}

// alias turns the order of names around.
func alias(node string) string {
	return fmt.Sprintf("x%d", 999-int(node[0])-int(node[1]))
}

func aliases(nodes []string) []string {
	var names []string
	for _, node := range nodes {
		names = append(names, alias(node))
	}
	return names
}

func aliased(pipelines []Pipeline) []Pipeline {
	var renamed []Pipeline
	for _, pipeline := range pipelines {
		pipeline.Stages = slices.Clone(pipeline.Stages)
		for st := range pipeline.Stages {
			pipeline.Stages[st].Node = alias(pipeline.Stages[st].Node)
		}
		renamed = append(renamed, pipeline)
	}
	return renamed
}

func (s Situation) renamed() Situation {
	s.Nodes, s.Empty, s.Current = aliases(s.Nodes), aliases(s.Empty), aliased(s.Current)
	return s
}

func (c Candidate) renamed() Candidate {
	c.Pipelines, c.Reroutes = aliased(c.Pipelines), slices.Clone(c.Reroutes)
	for i, reroute := range c.Reroutes {
		c.Reroutes[i].From, c.Reroutes[i].To = alias(reroute.From), alias(reroute.To)
	}
	peaks := map[string]int64{}
	for node, peak := range c.PeakBytes {
		peaks[alias(node)] = peak
	}
	c.PeakBytes = peaks
	var classes [][]string
	for _, class := range c.Classes {
		classes = append(classes, aliases(class))
	}
	c.Classes = classes
	return c
}
