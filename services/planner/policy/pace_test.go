package policy

import (
	"math/rand/v2"
	"testing"
)

func TestAfterLossesThePlanTrainsAboutAsMuchAsTheBestForThoseWhoAreLeft(t *testing.T) {
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 12))
		s := usual(8 + random.IntN(9))
		s.MicroBatches, s.GlobalBatch, s.PipelineLength.Least = 64, 64, 3
		for layer := range s.Layers {
			s.Layers[layer].ForwardSeconds = 0.5 + random.Float64()
		}
		for range s.Nodes {
			s.Speed = append(s.Speed, 1+0.25*float64(random.IntN(5)))
		}
		for range len(s.Nodes) / 4 {
			s.Current = choose(t, s)[0].Pipelines
			s = s.lose(s.Nodes[random.IntN(len(s.Nodes))])
			anew := s
			anew.Current = nil
			if reached, best := choose(t, s)[0], choose(t, anew)[0]; reached.StepSeconds*0.95 > best.StepSeconds {
				t.Errorf("seed %d: %v s on %d nodes, where %v s are possible", seed, reached.StepSeconds, len(s.Nodes),
					best.StepSeconds)
			}
		}
	}
}
