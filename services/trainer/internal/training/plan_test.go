package training

import (
	"slices"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/trainer/internal/transport"
)

// chain is a pipeline: nodes, each with the layer its stage ends at.
type chain struct {
	microBatches int
	nodes        string // separated by blanks
	ends         []int
}

// planOf returns a plan of pipelines, with all-reduces in as few rounds as come greedily.
func planOf(config Config, chains ...chain) *events.Plan {
	plan := &events.Plan{
		Cluster: "test", Generation: 1, Parent: "sha256:0", Policy: "repipeline", LearningRateScale: 1,
		Data: events.Data{GlobalBatch: config.GlobalBatch, MicroBatch: config.MicroBatch},
	}
	for _, chain := range chains {
		pipeline := events.Pipeline{MicroBatches: chain.microBatches}
		first := 0
		for i, name := range strings.Fields(chain.nodes) {
			layers := events.Range{First: first, End: chain.ends[i]}
			pipeline.Stages = append(pipeline.Stages, events.Stage{Node: name, Layers: layers})
			first = layers.End
		}
		plan.Pipelines = append(plan.Pipelines, pipeline)
	}
	partition(plan, config.Shape.Partitions)
	plan.Sync = syncOf(plan)
	return plan
}

// partition has each of so many partitions kept by two pipelines, where there are two.
func partition(plan *events.Plan, partitions int) {
	slots := min(2, len(plan.Pipelines)) * partitions
	for i := range plan.Pipelines {
		for slot := slots * i / len(plan.Pipelines); slot < slots*(i+1)/len(plan.Pipelines); slot++ {
			plan.Pipelines[i].Partitions = append(plan.Pipelines[i].Partitions, slot%partitions)
		}
		slices.Sort(plan.Pipelines[i].Partitions)
	}
}

// syncOf puts runs of layers with the same holders, other than lost ones, into rounds.
func syncOf(plan *events.Plan, lost ...string) events.Sync {
	var groups []events.Group
	for layer := range plan.LayerCount() {
		var nodes []string
		for _, pipeline := range plan.Pipelines {
			for _, stage := range pipeline.Stages {
				if stage.Layers.First <= layer && layer < stage.Layers.End && !slices.Contains(lost, stage.Node) {
					nodes = append(nodes, stage.Node)
				}
			}
		}
		if last := len(groups) - 1; last >= 0 && slices.Equal(groups[last].Nodes, nodes) {
			groups[last].Layers.End++
		} else {
			groups = append(groups, events.Group{Layers: events.Range{First: layer, End: layer + 1}, Nodes: nodes})
		}
	}
	var sync events.Sync
	for _, group := range groups {
		free := slices.IndexFunc(sync.Rounds, func(round events.Round) bool {
			return !slices.ContainsFunc(round.Groups, func(other events.Group) bool {
				return slices.ContainsFunc(group.Nodes, func(node string) bool { return slices.Contains(other.Nodes, node) })
			})
		})
		if free < 0 {
			free = len(sync.Rounds)
			sync.Rounds = append(sync.Rounds, events.Round{})
		}
		sync.Rounds[free].Groups = append(sync.Rounds[free].Groups, group)
	}
	return sync
}

func TestAPlanForAnotherTrainingIsRefused(t *testing.T) {
	config := testConfig(t)
	config.Node = "a"
	for name, spoil := range map[string]func(*events.Plan){
		"another model":           func(plan *events.Plan) { plan.Pipelines[0].Stages[0].Layers.End = 3 },
		"another global batch":    func(plan *events.Plan) { plan.Data.GlobalBatch++ },
		"another micro-batch":     func(plan *events.Plan) { plan.Data.MicroBatch++ },
		"too few micro-batches":   func(plan *events.Plan) { plan.Pipelines[0].MicroBatches-- },
		"no place for the node":   func(plan *events.Plan) { plan.Pipelines[0].Stages[0].Node = "c" },
		"no address for a peer":   func(plan *events.Plan) { plan.Nodes = plan.Nodes[:1] },
		"a holder in no group":    func(plan *events.Plan) { plan.Sync.Rounds = nil },
		"other partitions":        func(plan *events.Plan) { plan.Pipelines[1].Partitions = []int{0, 1} },
		"a reroute to no holders": func(plan *events.Plan) { plan.Reroutes = []events.Reroute{{From: "b", To: "c", MicroBatches: 4}} },
	} {
		plan := planOf(config, chain{4, "a", []int{6}}, chain{4, "b", []int{6}})
		plan.Nodes = []events.Member{{Node: "a"}, {Node: "b"}}
		if _, err := assign(plan, config); err != nil {
			t.Fatalf("the plan before: %v", err)
		}
		spoil(plan)
		if a, err := assign(plan, config); err == nil {
			t.Errorf("%s: assigned %+v", name, a)
		}
	}
}

func TestEveryNodeRunsTheSamplesThatThePlanSays(t *testing.T) {
	config := testConfig(t)
	config.Node = "c"
	plan := planOf(config, chain{4, "a b", []int{3, 6}}, chain{2, "c d", []int{3, 6}}, chain{2, "e f", []int{3, 6}})
	plan.Nodes = []events.Member{{Node: "a"}, {Node: "c"}, {Node: "d"}, {Node: "e"}, {Node: "f"}} // b is lost
	plan.Reroutes = []events.Reroute{{From: "b", To: "f", MicroBatches: 3}, {From: "b", To: "d", MicroBatches: 1}}
	plan.Sync = syncOf(plan, "b")
	a, err := assign(plan, config)
	if err != nil {
		t.Fatal(err)
	}
	for microBatch, route := range a.routes {
		first := microBatch * config.MicroBatch
		for _, stage := range route {
			isSaid := func(samples events.Range) bool { return samples.First <= first && first < samples.End }
			if said := plan.SamplesOf(stage.Node); !slices.ContainsFunc(said, isSaid) {
				t.Errorf("%s runs samples from %d on: the plan says %v", stage.Node, first, said)
			}
		}
	}
}

func TestARelayedPairIsToldApart(t *testing.T) {
	config := testConfig(t)
	config.Node = "b"
	plan := planOf(config, chain{4, "a b", []int{3, 6}}, chain{4, "c d", []int{3, 6}})
	plan.Nodes = []events.Member{{Node: "a"}, {Node: "b"}, {Node: "c"}, {Node: "d"}}
	plan.Relays = []events.Pair{{A: "a", B: "b"}}
	a, err := assign(plan, config)
	want := []transport.Peer{{Node: "a", Relayed: true}, {Node: "d"}}
	if err != nil || !slices.Equal(a.peers, want) {
		t.Errorf("peers are %+v, %v: expected %+v", a.peers, err, want)
	}
}
