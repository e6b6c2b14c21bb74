package policy

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/reknit/reknit/services/planner/estimate"
)

// usual is a job of six equal layers on so many nodes that hold as many bytes as they like, on links that hardly cost.
func usual(nodes int) Situation {
	s := Situation{
		MicroBatches: 12, GlobalBatch: 12, MinReplicas: 2, SecondsBetweenFailures: 3600, SwitchSeconds: 0.05,
		Network: Network{TransferSeconds: 0.001, BytesPerSecond: 1e9, LatencySeconds: 0.0005},
	}
	for range 6 {
		s.Layers = append(s.Layers,
			estimate.Layer{ForwardSeconds: 1, BackwardSeconds: 2, StaticBytes: 100, ActivationBytes: 1})
		s.StateBytes = append(s.StateBytes, 80)
		s.GradientBytes = append(s.GradientBytes, 20)
	}
	for i := range nodes {
		s.Nodes = append(s.Nodes, fmt.Sprintf("n%d", i+1))
		s.MemoryBytes = append(s.MemoryBytes, 1<<40)
	}
	return s
}

// grid is a plan of equal pipelines: n1, n2 ... along the first, and so on.
func grid(width, length, layers, microBatches int) []Pipeline {
	var pipelines []Pipeline
	for p := range width {
		pipeline := Pipeline{MicroBatches: microBatches / width}
		for st := range length {
			pipeline.Stages = append(pipeline.Stages, Stage{
				Node:   fmt.Sprintf("n%d", p*length+st+1),
				Layers: estimate.Range{First: st * layers / length, End: (st + 1) * layers / length},
			})
		}
		pipelines = append(pipelines, pipeline)
	}
	return pipelines
}

// lose takes nodes out of a situation whose plan in force still names them.
func (s Situation) lose(nodes ...string) Situation {
	left := s
	left.Nodes, left.MemoryBytes, left.Speed, left.Network.Dear, left.Network.Links = nil, nil, nil, nil, nil
	for i, node := range s.Nodes {
		if !slices.Contains(nodes, node) {
			left.Nodes, left.MemoryBytes = append(left.Nodes, node), append(left.MemoryBytes, s.MemoryBytes[i])
			if s.Speed != nil {
				left.Speed = append(left.Speed, s.Speed[i])
			}
		}
	}
	for _, pair := range s.Network.Dear {
		a, b := slices.Index(left.Nodes, s.Nodes[pair[0]]), slices.Index(left.Nodes, s.Nodes[pair[1]])
		if a >= 0 && b >= 0 {
			left.Network.Dear = append(left.Network.Dear, [2]int{a, b})
		}
	}
	for _, link := range s.Network.Links {
		link.From, link.To = slices.Index(left.Nodes, s.Nodes[link.From]), slices.Index(left.Nodes, s.Nodes[link.To])
		if link.From >= 0 && link.To >= 0 {
			left.Network.Links = append(left.Network.Links, link)
		}
	}
	return left
}

// randomSituation has a plan in force most of the time, after which nodes were lost, joined and came back empty.
func randomSituation(random *rand.Rand) Situation {
	s := randomCluster(random)
	if random.IntN(4) == 0 {
		return s
	}
	return s.changed(random)
}

// randomPartitioned is that of a job whose optimizer state is partitioned, and most of a layer.
func randomPartitioned(random *rand.Rand) Situation {
	s := randomCluster(random)
	s.Partitions = 1 + random.IntN(5)
	for layer := range s.Layers {
		bytes := int64(s.Partitions) + random.Int64N(60)
		s.OptimizerBytes = append(s.OptimizerBytes, bytes)
		s.Layers[layer].StaticBytes += bytes
		s.StateBytes[layer] += bytes
	}
	if random.IntN(4) == 0 {
		return s
	}
	return s.changed(random)
}

// randomCluster has no plan in force.
func randomCluster(random *rand.Rand) Situation {
	s := usual(1 + random.IntN(9))
	s.Layers, s.StateBytes, s.GradientBytes = nil, nil, nil
	for range 1 + random.IntN(8) {
		s.Layers = append(s.Layers, estimate.Layer{
			ForwardSeconds: float64(random.IntN(9)), BackwardSeconds: float64(1 + random.IntN(20)),
			StaticBytes: int64(random.IntN(20)), ActivationBytes: int64(random.IntN(4)),
		})
		s.StateBytes = append(s.StateBytes, random.Int64N(1e9))
		s.GradientBytes = append(s.GradientBytes, random.Int64N(1e9))
	}
	for i := range s.MemoryBytes {
		s.MemoryBytes[i] = 60 + random.Int64N(100)
	}
	s.MicroBatches = 1 + random.IntN(12)
	s.GlobalBatch = s.MicroBatches * (1 + random.IntN(3))
	s.MinReplicas = 1 + random.IntN(3)
	s.SecondsBetweenFailures = []float64{1, 60, 1e9}[random.IntN(3)]
	if random.IntN(2) == 0 {
		s.Network.Dear, s.Network.DearSeconds = randomPairs(random, len(s.Nodes)), 3
	}
	if random.IntN(2) == 0 {
		s.Network.ActivationBytes, s.Network.Links = 1e6, s.randomLinks(random)
	}
	if random.IntN(3) == 0 {
		for range s.Nodes {
			s.Speed = append(s.Speed, 1+float64(random.IntN(3)))
		}
	}
	return s
}

// changed puts a plan in force and changes the nodes under it.
func (s Situation) changed(random *rand.Rand) Situation {
	found, err := Choose(s)
	if err != nil {
		return s
	}
	s.Current = found[random.IntN(len(found))].Pipelines
	var lost []string
	for _, node := range s.Nodes {
		switch random.IntN(6) {
		case 0:
			lost = append(lost, node)
		case 1:
			s.Empty = append(s.Empty, node)
		}
	}
	if len(lost) < len(s.Nodes) {
		s = s.lose(lost...)
	}
	for i := range random.IntN(3) {
		joiner := fmt.Sprintf("j%d", i)
		s.Nodes, s.MemoryBytes, s.Empty = append(s.Nodes, joiner), append(s.MemoryBytes, 100), append(s.Empty, joiner)
		if s.Speed != nil {
			s.Speed = append(s.Speed, 1)
		}
	}
	return s
}

// randomLinks differ from the usual; every third or so, in one direction or both, of pairs that are not dear.
func (s Situation) randomLinks(random *rand.Rand) (links []Link) {
	for a := range s.Nodes {
		for b := range s.Nodes {
			if a != b && random.IntN(3) == 0 && !slices.Contains(s.Network.Dear, [2]int{min(a, b), max(a, b)}) {
				links = append(links, Link{a, b, random.Float64(), 1e5 + 1e10*random.Float64(), false})
			}
		}
	}
	return links
}

// randomPairs are pairs without a direct link; every fifth or so.
func randomPairs(random *rand.Rand, nodes int) (dear [][2]int) {
	for a := range nodes {
		for b := range a {
			if random.IntN(5) == 0 {
				dear = append(dear, [2]int{b, a})
			}
		}
	}
	return dear
}
