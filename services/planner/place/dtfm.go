package place

// Network is the links between devices, as DT-FM has them: symmetric, both directions averaged.
type Network struct {
	DelaySeconds   [][]float64
	BytesPerSecond [][]float64
}

func (n Network) seconds(a, b int, bytes float64) float64 {
	return n.DelaySeconds[a][b] + bytes/n.BytesPerSecond[a][b]
}

// Cost is DT-FM's cost of a partition of devices into equally large data-parallel groups, one a stage, in any order
// (eq. 2 to 4): the slowest group's exchange of gradients, and the cheapest path through the groups, where an edge is
// the slowest link of the best pairing of the two. At most 16 or so groups: the path takes O(2^groups * groups^2).
func (n Network) Cost(groups [][]int, gradientBytes, activationBytes float64) (dataParallel, pipeline float64) {
	edges := make([][]float64, len(groups))
	for i, group := range groups {
		dataParallel = max(dataParallel, n.exchangeSeconds(group, gradientBytes))
		edges[i] = make([]float64, len(groups))
		for j := range i {
			edges[i][j] = n.pairingSeconds(group, groups[j], activationBytes)
			edges[j][i] = edges[i][j]
		}
	}
	return dataParallel, ShortestPath(edges)
}

// exchangeSeconds: every member sends its part of the gradients, one of as many as there are members, to every other
// and back; the slowest member counts.
func (n Network) exchangeSeconds(group []int, bytes float64) float64 {
	slowest := 0.0
	for _, a := range group {
		seconds := 0.0
		for _, b := range group {
			if a != b {
				seconds += 2 * n.seconds(a, b, bytes/float64(len(group)))
			}
		}
		slowest = max(slowest, seconds)
	}
	return slowest
}

// pairingSeconds is the slowest link, there and back, of the pairing of two groups whose slowest link is the fastest.
func (n Network) pairingSeconds(left, right []int, bytes float64) float64 {
	var links []float64
	for _, a := range left {
		for _, b := range right {
			links = append(links, 2*n.seconds(a, b, bytes))
		}
	}
	seconds, _ := bottleneck(links, len(left))
	return seconds
}
