package place

import (
	"math"
	"slices"
)

// sites groups nodes whose links to all others are alike, as those of one data centre are: one grouping for each number of sites
// from most down to two, by joining the two that are most alike until all are one (average linkage). gain is how much less alike
// the next two are than those joined last; of a network with clear sites it is largest at their number. O(nodes^3 / 6).
func (l *layout) sites(most int) (groupings []grouping) {
	k, last := newLinkage(l.unlikeness()), indistinct
	for {
		sites := slices.Clone(k.groups)
		distance, joined := k.join(l.links.nodes, math.Inf(1))
		if !joined {
			return groupings
		}
		if len(sites) <= most {
			groupings = append(groupings, grouping{sites, max(distance, indistinct) / last})
		}
		last = max(last, distance)
	}
}

// grouping is nodes in sites.
type grouping struct {
	sites [][]int
	gain  float64
}

// indistinct is how unlike the links of nodes are that are taken for alike, as a share.
const indistinct = 0.01

// unlikeness tells of two nodes by what share their links to others differ, in the mean of at most 64 others.
func (l *layout) unlikeness() [][]float64 {
	n := l.links.nodes
	logs := make([][]float64, n)
	for a := range n {
		row := l.links.row(a)
		for b := range n {
			logs[a] = append(logs[a], math.Log(l.hopOver(row[b])+tiny))
		}
	}
	unlike := make([][]float64, n)
	step := 1 + (n-1)/64
	for a := range n {
		unlike[a] = make([]float64, n)
		for b := range a {
			sum, others := 0.0, 0
			for other := 0; other < n; other += step {
				if other != a && other != b {
					sum += math.Abs(logs[a][other] - logs[b][other])
					others++
				}
			}
			if others > 0 {
				unlike[a][b] = sum / float64(others)
				unlike[b][a] = unlike[a][b]
			}
		}
	}
	return unlike
}

const tiny = 1e-12 // seconds: so that a link that takes none has a logarithm
