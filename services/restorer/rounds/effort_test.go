package rounds

import (
	"math/rand/v2"
	"testing"

	"github.com/reknit/reknit/services/restorer/layers"
)

// Of pipelines with these numbers of stages, in any mixture, four to 128 are drawn.
var mixtures = [][]int{
	{7, 8, 9}, {8, 8, 8, 8, 8, 8, 11, 16}, {4, 5}, {3, 4, 5}, {8, 9}, {6, 7, 8, 9, 10, 11}, {2, 3},
}

func TestTenTimesTheSearchFindsNothingShorter(t *testing.T) {
	const modelLayers = 32
	for m, mixture := range mixtures {
		for _, pipelines := range []int{4, 12, 32, 128} {
			for seed := range uint64(6) {
				holdings := drawn(rand.New(rand.NewPCG(seed, 1)), modelLayers, pipelines, mixture)
				groups, err := Groups(modelLayers, holdings)
				if err != nil {
					t.Fatal(err)
				}
				weights := make([]int64, len(groups))
				for g, group := range groups {
					weights[g] = nanoseconds(group)
				}
				devices := itemsOf(groups, len(holdings))
				found, _ := Colour(weights, devices, effort)
				if longer, _ := Colour(weights, devices, 10*effort); longer.Cost < found.Cost {
					t.Errorf("mixture %d, %d pipelines, seed %d: %d ns, and %d in ten times the search", m, pipelines, seed,
						found.Cost, longer.Cost)
				}
			}
		}
	}
}

// drawn cuts pipelines into stages of about the same length.
func drawn(random *rand.Rand, modelLayers, pipelines int, mixture []int) (holdings [][]layers.Range) {
	for range pipelines {
		stages, first := mixture[random.IntN(len(mixture))], 0
		for s := range stages {
			end := first + (modelLayers-first)/(stages-s)
			if s < stages-1 && random.IntN(3) == 0 && end < modelLayers-(stages-s) {
				end++
			}
			holdings = append(holdings, []layers.Range{{First: first, End: end}})
			first = end
		}
	}
	return holdings
}

// nanoseconds is what an all-reduce of 64 MB a layer takes at 1.25 GB/s and a round trip of 1 ms.
func nanoseconds(group Group) int64 {
	nodes := float64(len(group.Nodes))
	if nodes < 2 {
		return 0
	}
	return int64(1e9 * (2*float64(group.Layers.End-group.Layers.First)*64e6*(nodes-1)/nodes/1.25e9 + 1e-3))
}
