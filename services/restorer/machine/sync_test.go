package machine

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/reknit/reknit/events"
)

// The twin looks at each link among the nodes.
func TestTheSlowestOfSomeNodesIsFoundWithoutLookingAtEachLink(t *testing.T) {
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 3))
		var names []string
		for i := range 2 + random.IntN(8) {
			names = append(names, fmt.Sprint("n", i))
		}
		r := &restoration{}
		if random.IntN(2) == 0 {
			r.Usual = &events.Usual{RoundTripSeconds: 1e-3, BandwidthBytesPerSecond: 3e8}
		}
		for range random.IntN(20) {
			link := events.Link{}
			link.From, link.To = names[random.IntN(len(names))], names[random.IntN(len(names))]
			link.BandwidthBytesPerSecond = float64(random.IntN(4)) * 1e8
			r.Links = append(r.Links, link)
		}
		for range random.IntN(4) {
			pair := events.PairOf(names[random.IntN(len(names))], names[random.IntN(len(names))])
			r.Unreachable = append(r.Unreachable, pair)
		}
		nodes := random.Perm(len(names))[:2+random.IntN(len(names)-1)]
		slices.Sort(nodes)
		got, want := r.mesh(names).slowest(nodes), slowestOfAll(nodes, r.bandwidths(names))
		if math.Abs(got-want) > 1e-9*want {
			t.Fatalf("seed %d: %v s for a byte, want %v", seed, got, want)
		}
	}
}

func slowestOfAll(nodes []int, bandwidths [][]float64) (perByte float64) {
	for _, node := range nodes {
		sends, receives := 0.0, 0.0
		for _, other := range nodes {
			if other != node {
				sends += 1 / bandwidths[node][other]
				receives += 1 / bandwidths[other][node]
			}
		}
		perByte = max(perByte, sends, receives)
	}
	return perByte
}
