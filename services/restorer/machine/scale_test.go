package machine

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/reknit/reknit/events"
)

// scaled draws a request of a kind for a model of so many layers.
type scaled func(random *rand.Rand, layers int) events.RestorationRequest

// Trainers in other languages may tell any number of layers up to events.MostUnits. The work is counted in bytes that are
// allocated, which are the same on any machine: tables of layers by layers are what made it grow as the fourth power.
func TestWorkGrowsAsTheLayersDo(t *testing.T) {
	for name, draw := range map[string]scaled{
		"two replicas, one giver": func(random *rand.Rand, layers int) events.RestorationRequest {
			return requestFor(layers, pipelines(random, layers, 2, 1), held("n0", 0, layers))
		},
		"sixteen replicas, half of them new": func(random *rand.Rand, layers int) events.RestorationRequest {
			return requestFor(layers, pipelines(random, layers, 16, 1), holdingOf(pipelines(random, layers, 8, 1))...)
		},
		"two pipelines that are cut anew": func(random *rand.Rand, layers int) events.RestorationRequest {
			return requestFor(layers, pipelines(random, layers, 2, 3), holdingOf(pipelines(random, layers, 2, 3))...)
		},
		"sixteen pipelines that are cut anew": func(random *rand.Rand, layers int) events.RestorationRequest {
			return requestFor(layers, pipelines(random, layers, 16, 4), holdingOf(pipelines(random, layers, 16, 4))...)
		},
		"layers strewn over all nodes": func(random *rand.Rand, layers int) events.RestorationRequest {
			return requestFor(layers, pipelines(random, layers, 2, 3), strewn(random, layers, 6)...)
		},
		"optimizer state in fifteen partitions": func(random *rand.Rand, units int) events.RestorationRequest {
			plan := pipelines(random, units/16, 4, 2)
			before := pipelines(random, units/16, 4, 2)
			for p := range plan.Pipelines {
				for z := p % 2; z < 15; z += 2 {
					plan.Pipelines[p].Partitions = append(plan.Pipelines[p].Partitions, z)
				}
			}
			for p := range before.Pipelines {
				before.Pipelines[p].Partitions = plan.Pipelines[3-p].Partitions
			}
			return requestFor(units, plan, holdingOf(before)...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			few := restoringAllocates(t, draw(rand.New(rand.NewPCG(1, 1)), events.MostUnits/4))
			all := restoringAllocates(t, draw(rand.New(rand.NewPCG(1, 1)), events.MostUnits))
			if all > 6*few {
				t.Errorf("four times the layers take %d bytes instead of %d, %.1f times as many", all, few, float64(all)/float64(few))
			}
		})
	}
}

func restoringAllocates(t *testing.T, request events.RestorationRequest) uint64 {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	restoration, err := Restore(request)
	runtime.ReadMemStats(&after)
	if err != nil {
		t.Fatal(err)
	}
	if restoration.BytesMoved == 0 {
		t.Fatal("nothing moves")
	}
	return after.TotalAlloc - before.TotalAlloc
}

// requestFor asks for a plan of a model of tiny layers, in which all nodes may trade places.
func requestFor(layers int, plan events.Plan, holders ...events.Holder) events.RestorationRequest {
	units, all := make([]int64, layers), make([]string, len(plan.Nodes))
	for i := range units {
		units[i] = 1000 + int64(i%7)
	}
	for i, member := range plan.Nodes {
		all[i] = member.Node
	}
	return events.RestorationRequest{Negotiation: "g2-1", Units: units, Holders: holders,
		Proposal: events.Proposal{Negotiation: "g2-1", Plan: plan, Classes: [][]string{all}}}
}

// pipelines draws pipelines of n0, n1 and so on, whose stages are as long as the others', more or less.
func pipelines(random *rand.Rand, layers, count, stages int) (plan events.Plan) {
	for p := range count {
		var chain []events.Stage
		for s, first := 0, 0; s < stages; s++ {
			end := layers * (s + 1) / stages
			if s < stages-1 {
				end += random.IntN(layers/stages/4) - layers/stages/8
			}
			node := fmt.Sprint("n", p*stages+s)
			plan.Nodes = append(plan.Nodes, members(node)...)
			chain = append(chain, stage(node, first, end))
			first = end
		}
		plan.Pipelines = append(plan.Pipelines, events.Pipeline{MicroBatches: 4, Stages: chain})
	}
	return plan
}

// holdingOf is what all nodes of a plan but the last one hold by it.
func holdingOf(plan events.Plan) (holders []events.Holder) {
	units := plan.UnitsOfAll()
	for _, node := range plan.Nodes[:max(1, len(plan.Nodes)-1)] {
		holders = append(holders, events.Holder{Node: node.Node, Units: units[node.Node]})
	}
	return holders
}

// strewn has each node hold half of the layers, and each layer one of them at least.
func strewn(random *rand.Rand, layers, nodes int) (holders []events.Holder) {
	for n := range nodes {
		holder := events.Holder{Node: fmt.Sprint("n", n)}
		for layer := range layers {
			if random.IntN(2) == 0 || layer%nodes == n {
				holder.Units = append(holder.Units, events.Range{First: layer, End: layer + 1})
			}
		}
		holders = append(holders, holder)
	}
	return holders
}
