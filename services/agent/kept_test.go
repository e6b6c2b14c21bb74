package agent

import (
	"testing"

	"github.com/reknit/reknit/events"
)

func TestAPartOfASnapshotCountsAsThePlanHadIt(t *testing.T) {
	stage := func(node string, first, end int) events.Stage {
		return events.Stage{Node: node, Layers: events.Range{First: first, End: end}}
	}
	plan := &events.Plan{Generation: 7, ResumeStep: 100,
		Pipelines: []events.Pipeline{{MicroBatches: 1, Stages: []events.Stage{stage("n1", 0, 2), stage("n2", 2, 3)}}}}
	for name, row := range map[string]struct {
		last, step uint64
		node       string
		units      []int
		counts     bool
	}{
		"its units":                       {0, 120, "n1", []int{0, 1}, true},
		"another's":                       {0, 120, "n1", []int{0, 2}, false},
		"of nobody in the plan":           {0, 120, "n3", []int{0}, false},
		"of before the plan":              {0, 99, "n1", []int{0}, false},
		"where the next plan took over":   {150, 150, "n2", []int{2}, true},
		"beyond":                          {150, 151, "n2", []int{2}, false},
		"under the plan that is in force": {0, 1 << 40, "n2", []int{2}, true},
	} {
		if err := (reign{plan, row.last}).check(row.node, row.step, row.units); (err == nil) != row.counts {
			t.Errorf("%s: %v", name, err)
		}
	}
}
