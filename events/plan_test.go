package events

import (
	"math"
	"slices"
	"strings"
	"testing"
)

// sound is a plan that breaks no rule: two pipelines over six layers, five nodes.
func sound() *Plan {
	member := func(node string) Member { return Member{Node: node, Incarnation: "a", Address: "127.0.0.1:1"} }
	return &Plan{
		Cluster: "opticks", Generation: 7, Parent: Digest([]byte("6")), Policy: "repipeline", ResumeStep: 1201,
		Nodes: []Member{member("n1"), member("n2"), member("n3"), member("n5"), member("n6")},
		Pipelines: []Pipeline{
			{MicroBatches: 10, Stages: []Stage{{"n1", Range{0, 2}}, {"n2", Range{2, 4}}, {"n3", Range{4, 6}}}},
			{MicroBatches: 6, Stages: []Stage{{"n5", Range{0, 3}}, {"n6", Range{3, 6}}}},
		},
		Sync: Sync{Rounds: []Round{
			{Groups: []Group{{Range{0, 2}, []string{"n1", "n5"}}, {Range{3, 4}, []string{"n2", "n6"}}}},
			{Groups: []Group{{Range{2, 3}, []string{"n2", "n5"}}, {Range{4, 6}, []string{"n3", "n6"}}}},
		}},
		Migration: Migration{
			Transfers: []Transfer{{Unit: 3, To: "n6",
				Sources: []Source{{"n2", Range{0, 2}, 4e8}, {Node: "n5", Shards: Range{2, 3}}}, Bytes: 3 << 20}},
			ShardBytes: 1 << 20,
		},
		Data:              Data{GlobalBatch: 64, MicroBatch: 4, ConsumedSamples: 76864},
		LearningRateScale: 1,
	}
}

func TestASoundPlanIsAccepted(t *testing.T) {
	if err := sound().Validate(); err != nil {
		t.Error(err)
	}
}

func TestAPlanThatBreaksARuleIsRefusedByName(t *testing.T) {
	for _, test := range []struct {
		rule  string
		names string
		spoil func(*Plan)
	}{
		{"a cluster", "cluster", func(p *Plan) { p.Cluster = "" }},
		{"a generation", "generation", func(p *Plan) { p.Generation = 0 }},
		{"a parent after generation 1", "parent", func(p *Plan) { p.Parent = "" }},
		{"a pipeline", "pipelines", func(p *Plan) { p.Pipelines = nil }},
		{"stages", "pipelines: [0]", func(p *Plan) {
			p.Pipelines, p.Sync.Rounds = []Pipeline{{MicroBatches: 16}}, nil
		}},
		{"fewer layers than anybody has", "pipelines: [0].stages", func(p *Plan) { p.Pipelines[0].Stages[2].Layers.End = 1 << 48 }},
		{"each node once", "nodes", func(p *Plan) { p.Nodes = append(p.Nodes, p.Nodes[0]) }},
		{"every layer in every pipeline", "pipelines: [1]", func(p *Plan) { p.Pipelines[1].Stages[1].Layers.End = 5 }},
		{"no gap between stages", "stages[1]", func(p *Plan) { p.Pipelines[0].Stages[1].Layers.First = 3 }},
		{"no layer twice in a pipeline", "stages[1]", func(p *Plan) { p.Pipelines[0].Stages[1].Layers.First = 1 }},
		{"no stage without layers", "stages[0]", func(p *Plan) { p.Pipelines[0].Stages[0].Layers.End = 0 }},
		{"only active nodes", "n4", func(p *Plan) { p.Pipelines[1].Stages[0].Node = "n4" }},
		{"one place a node", "n1", func(p *Plan) { p.Pipelines[1].Stages[0].Node = "n1" }},
		{"a micro-batch a pipeline", "pipelines[1].microBatches", func(p *Plan) { p.Pipelines[1].MicroBatches = 0 }},
		{"the global batch", "64 samples", func(p *Plan) { p.Pipelines[1].MicroBatches = 7 }},
		{"reroutes from lost nodes only", "reroutes", func(p *Plan) { p.Reroutes = []Reroute{{From: "n1", To: "n5", MicroBatches: 1}} }},
		{"reroutes to active nodes only", "reroutes", func(p *Plan) { p.Reroutes = []Reroute{{From: "n4", To: "n9", MicroBatches: 1}} }},
		{"no node twice in a round", "rounds[0].groups[1]", func(p *Plan) { p.Sync.Rounds[0].Groups[1].Nodes[0] = "n1" }},
		{"only active nodes in a round", "rounds[1]", func(p *Plan) { p.Sync.Rounds[1].Groups[0].Nodes[0] = "n4" }},
		{"every shard of a layer", "transfers[0]", func(p *Plan) { p.Migration.Transfers[0].Sources[1].Shards.First = 3 }},
		{"transfers to active nodes", "transfers[0]", func(p *Plan) { p.Migration.Transfers[0].To = "n4" }},
		{"rates of links", "bytesPerSecond", func(p *Plan) { p.Migration.Transfers[0].Sources[0].BytesPerSecond = -1 }},
		{"transfers from somewhere", "transfers[0]", func(p *Plan) { p.Migration.Transfers[0].Sources = nil }},
	} {
		plan := sound()
		test.spoil(plan)
		if err := plan.Validate(); err == nil || !strings.Contains(err.Error(), test.names) {
			t.Errorf("without %s: error %v, expected one that names %s", test.rule, err, test.names)
		}
	}
}

// partitioned is a sound plan whose optimizer state is cut in two: each pipeline keeps one half.
func partitioned() *Plan {
	plan := sound()
	plan.Pipelines[0].Partitions, plan.Pipelines[1].Partitions = []int{0}, []int{1}
	return plan
}

func TestANodeHoldsItsLayersAndItsPipelinesPartitionsOfTheirOptimizerState(t *testing.T) {
	plan := partitioned()
	if err := plan.Validate(); err != nil {
		t.Fatal(err)
	}
	if got := plan.UnitCount(); got != 18 {
		t.Errorf("%d rows: expected 6 layers and 2 partitions of each", got)
	}
	for node, want := range map[string][]Range{
		"n2": {{2, 4}, {8, 10}},  // layers 2 and 3, and partition 0 of them
		"n6": {{3, 6}, {15, 18}}, // layers 3 to 5, and partition 1 of them
		"n9": nil,
	} {
		if got := plan.UnitsOf(node); !slices.Equal(got, want) {
			t.Errorf("%s holds rows %v: expected %v", node, got, want)
		}
	}
	if got := sound().UnitsOf("n2"); !slices.Equal(got, []Range{{2, 4}}) {
		t.Errorf("without partitions n2 holds rows %v", got)
	}
}

func TestAPlanThatLosesAPartitionIsRefused(t *testing.T) {
	for _, test := range []struct {
		first, second []int
		names         string
	}{
		{[]int{0, 2}, []int{0, 2}, "partition 1 of layer 0"},
		{[]int{1, 0}, []int{0, 1}, "[0].partitions"},
		{[]int{0, 1}, []int{1, 1}, "[1].partitions"},
		{[]int{0}, []int{64}, "0 to 63"},
		{[]int{-1}, nil, "[0].partitions"},
		{[]int{-5, math.MaxInt}, []int{math.MinInt}, "[0].partitions"},
	} {
		plan := partitioned()
		plan.Pipelines[0].Partitions, plan.Pipelines[1].Partitions = test.first, test.second
		if err := plan.Validate(); err == nil || !strings.Contains(err.Error(), test.names) {
			t.Errorf("partitions %v and %v: error %v, expected one that names %s", test.first, test.second, err, test.names)
		}
	}
	large := partitioned()
	for p := range large.Pipelines {
		large.Pipelines[p].Stages[len(large.Pipelines[p].Stages)-1].Layers.End = MostUnits
	}
	if err := large.Validate(); err == nil || !strings.Contains(err.Error(), "at most 4096 layers and partitions") {
		t.Errorf("with 3 times 4096 rows: error %v", err)
	}
	plan := partitioned()
	plan.Nodes, plan.Reroutes = plan.Nodes[1:], []Reroute{{From: "n1", To: "n5", MicroBatches: 10}}
	plan.Sync.Rounds = nil
	if err := plan.Validate(); err == nil || !strings.Contains(err.Error(), "partition 0 of layer 0") {
		t.Errorf("with the only holder of a partition lost: error %v", err)
	}
}

func TestTheRowsOfAJobTakeAllOfItsBytes(t *testing.T) {
	job := Job{OptimizerPartitions: 3, Layers: []LayerProfile{{ParameterBytes: 10, OptimizerBytes: 20},
		{ParameterBytes: 30, OptimizerBytes: 61}}}
	if got := job.UnitBytes(); !slices.Equal(got, []int64{10, 30, 6, 20, 7, 20, 7, 21}) {
		t.Errorf("rows of %v bytes", got)
	}
	job.OptimizerPartitions = 0
	if got := job.UnitBytes(); !slices.Equal(got, []int64{30, 91}) {
		t.Errorf("without partitions rows of %v bytes", got)
	}
}

func TestALostStageIsHeldByReroutes(t *testing.T) {
	plan := sound()
	plan.Pipelines[1].Stages = []Stage{{"n4", Range{0, 2}}, {"n5", Range{2, 4}}, {"n6", Range{4, 6}}}
	plan.Sync.Rounds, plan.Migration.Transfers = nil, nil
	if err := plan.Validate(); err == nil {
		t.Error("a plan with a lost node and no reroute is accepted")
	}
	plan.Reroutes = []Reroute{{From: "n4", To: "n1", Stage: 0, MicroBatches: 6}}
	if err := plan.Validate(); err != nil {
		t.Error(err)
	}
}

func TestAPlanTellsWhoHoldsWhat(t *testing.T) {
	plan := sound()
	if layers, ok := plan.Holds("n5"); !ok || layers != (Range{0, 3}) {
		t.Errorf("n5 holds %v, %v", layers, ok)
	}
	if layers, ok := plan.Holds("n4"); ok {
		t.Errorf("n4, which has no place, holds %v", layers)
	}
	if count := plan.LayerCount(); count != 6 {
		t.Errorf("%d layers, expected 6", count)
	}
}

func TestAMemberIsFoundInWhateverOrderTheyAreListed(t *testing.T) {
	for _, nodes := range [][]string{{"a", "b", "c"}, {"c", "a", "b"}, {"b", "c", "a"}} {
		var plan Plan
		for _, node := range nodes {
			plan.Nodes = append(plan.Nodes, Member{Node: node, Incarnation: "of " + node})
		}
		for _, node := range nodes {
			if member, there := plan.Member(node); !there || member.Incarnation != "of "+node {
				t.Errorf("%s among %v: %v, %v", node, nodes, member, there)
			}
		}
		if member, there := plan.Member("d"); there {
			t.Errorf("found %v, who is not among %v", member, nodes)
		}
	}
}
