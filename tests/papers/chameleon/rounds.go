package chameleon

import "github.com/reknit/reknit/services/restorer/layers"

// GreedyRounds is Chameleon's restorer as its text has it: layers that share a node must not share a round, and each
// layer takes the first round it can. A round ends with its longest all-reduce; GreedyRounds returns the sum of those.
func GreedyRounds(holdings [][]layers.Range, weights []int64) (sum int64) {
	roundOf := make([]int, len(weights))
	longest := map[int]int64{}
	for layer := range weights {
		taken := map[int]bool{}
		for _, held := range holdings {
			if held[0].First <= layer && layer < held[0].End {
				for other := held[0].First; other < layer; other++ {
					taken[roundOf[other]] = true
				}
			}
		}
		for taken[roundOf[layer]] {
			roundOf[layer]++
		}
		longest[roundOf[layer]] = max(longest[roundOf[layer]], weights[layer])
	}
	for _, length := range longest {
		sum += length
	}
	return sum
}
