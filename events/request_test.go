package events

import "testing"

func TestARequestLosesANodeThatTrainedAndWillNotBeThere(t *testing.T) {
	for what, test := range map[string]struct {
		there []string
		loses bool
	}{
		"all are there":    {[]string{"n1", "n2", "n3"}, false},
		"one more joins":   {[]string{"n1", "n2", "n3", "n4"}, false},
		"one that trained": {[]string{"n1", "n3", "n4"}, true},
		"a spare":          {[]string{"n1", "n2"}, false},
		"nobody is left":   {nil, true},
	} {
		r := PlanRequest{Current: &Plan{
			Nodes: []Member{{Node: "n1"}, {Node: "n2"}, {Node: "n3"}},
			Pipelines: []Pipeline{{MicroBatches: 1, Stages: []Stage{{Node: "n1", Layers: Range{0, 1}}, {Node: "n2", Layers: Range{1, 2}}}},
				{MicroBatches: 1, Stages: []Stage{{Node: "n0", Layers: Range{0, 2}}}}}, // n0 was lost before: others stand in
		}}
		for _, node := range test.there {
			r.Nodes = append(r.Nodes, Device{Member: Member{Node: node}})
		}
		if got := r.LosesNode(); got != test.loses {
			t.Errorf("%s: loses a node %v, expected %v", what, got, test.loses)
		}
	}
	if first := (&PlanRequest{}); first.LosesNode() || first.ComputeRatio(map[string]float64{"n1": 1}) != 0 {
		t.Error("before the first plan nobody trains")
	}
}
