package replicate_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/reknit/reknit/services/restorer/replicate"
)

// neighbour has sent n shards start + n * each nanoseconds from now (Chaos, equations 1 and 2).
type neighbour struct{ start, each int64 }

// fromNeighbours is problem P4 of Chaos: one node fetches equal shards from all others. A unit of time is a nanosecond.
func fromNeighbours(neighbours []neighbour, shards int64) replicate.Fetch {
	count := len(neighbours)
	fetch := replicate.Fetch{
		LayerBytes: []int64{shards}, ShardBytes: 1, Holders: make([][]int, 1),
		Needs: []replicate.Need{{Node: count, Layer: 0}}, IngressBytesPerSecond: slices.Repeat([]float64{1e15}, count+1),
	}
	for u, n := range neighbours {
		fetch.Holders[0] = append(fetch.Holders[0], u)
		fetch.EgressBytesPerSecond = append(fetch.EgressBytesPerSecond, 1/float64(n.each))
	}
	fetch.EgressBytesPerSecond = append(fetch.EgressBytesPerSecond, 0)
	for u := range count + 1 {
		starts := make([]float64, count+1)
		if u < count {
			starts[count] = float64(neighbours[u].start)
		}
		fetch.StartSeconds = append(fetch.StartSeconds, starts)
	}
	return fetch
}

func countsOf(fetched replicate.Fetched, neighbours int) []int64 {
	counts := make([]int64, neighbours)
	for _, source := range fetched.Sources[0] {
		counts[source.Node] += source.End - source.First
	}
	return counts
}

// greedily is Chaos's algorithm 1: shard after shard to the neighbour that would have sent it first. It is exact.
func greedily(neighbours []neighbour, shards, least int64) []int64 {
	counts := slices.Repeat([]int64{least}, len(neighbours))
	for range shards - least*int64(len(neighbours)) {
		best := 0
		for u, n := range neighbours {
			if b := neighbours[best]; n.start+(counts[u]+1)*n.each < b.start+(counts[best]+1)*b.each {
				best = u
			}
		}
		counts[best]++
	}
	return counts
}

func finish(neighbours []neighbour, counts []int64) int64 {
	last := int64(0)
	for u, n := range neighbours {
		if counts[u] > 0 {
			last = max(last, n.start+counts[u]*n.each)
		}
	}
	return last
}

func TestOneReceiverIsServedAsSoonAsByChaosAlgorithm(t *testing.T) {
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 1))
		longest := int64(1) << random.IntN(30)
		neighbours := make([]neighbour, 1+random.IntN(12))
		for u := range neighbours {
			neighbours[u] = neighbour{random.Int64N(longest), 1 + random.Int64N(longest)}
		}
		least := random.Int64N(2)
		shards := least*int64(len(neighbours)) + random.Int64N(300)
		fetch := fromNeighbours(neighbours, shards)
		fetch.EachHolder = least == 1
		fetched, err := replicate.PlanFetch(fetch)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		counts, want := countsOf(fetched, len(neighbours)), finish(neighbours, greedily(neighbours, shards, least))
		if got := finish(neighbours, counts); got != want || slices.Min(counts) < least {
			t.Fatalf("seed %d: %d shards of %v as %v take %d ns, by the greedy algorithm %d", seed, shards, neighbours, counts, got, want)
		}
		fluid, err := replicate.FluidSeconds(fetch)
		if err != nil || fluid > float64(want)*(1+1e-9) {
			t.Fatalf("seed %d: shards take %d ns, and %v when they are divided at will (%v)", seed, want, fluid, err)
		}
		flowed := 0.0
		for _, n := range neighbours {
			flowed += max(0, fluid-float64(n.start)) / float64(n.each)
		}
		if math.Abs(flowed-float64(shards)) > 1e-7*float64(shards) {
			t.Fatalf("seed %d: %v of %d shards flow within %v ns", seed, flowed, shards, fluid)
		}
	}
}

func TestDividedAtWillNoFetchTakesLongerThanInShards(t *testing.T) {
	for seed := range uint64(500) {
		fetch := randomFetch(rand.New(rand.NewPCG(seed, 2)), 6, 1_000_000)
		fluid, err := replicate.FluidSeconds(fetch)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		fetched, err := replicate.PlanFetch(fetch)
		if err != nil || fetched.Seconds < fluid*(1-1e-9) || fetched.Seconds > fluid*(1+1e-3)+30 {
			t.Fatalf("seed %d: %v s in shards, %v at will (%v)", seed, fetched.Seconds, fluid, err)
		}
	}
}

// The twin tries each size.
func TestTheLargestShardIsTheLargestWithWhichItTakesHardlyLonger(t *testing.T) {
	sizes, none := []int64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048}, 0
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 3))
		fetch := randomFetch(random, 2+random.IntN(4), 1<<random.IntN(16))
		fluid, err := replicate.FluidSeconds(fetch)
		if err != nil {
			t.Fatal(err)
		}
		best, before := int64(0), 0.0
		for _, size := range sizes {
			whole := fetch
			whole.ShardBytes, whole.LayerBytes = size, slices.Clone(fetch.LayerBytes)
			for layer, bytes := range whole.LayerBytes {
				whole.LayerBytes[layer] = (bytes + size - 1) / size * size
			}
			fetched, err := replicate.PlanFetch(whole)
			if err != nil {
				t.Fatal(err)
			}
			if fetched.Seconds < before*(1-1e-9) {
				t.Fatalf("seed %d: shards of %d take %v s, half as large ones %v", seed, size, fetched.Seconds, before)
			}
			if before = fetched.Seconds; before <= (1+replicate.Tolerance)*fluid {
				best = size
			}
		}
		size, within, err := replicate.LargestShard(fetch, sizes)
		if best == 0 {
			none++
		}
		if err != nil || within != (best > 0) || size != max(best, sizes[0]) {
			t.Fatalf("seed %d: shards of %d (%t, %v), expected %d", seed, size, within, err, best)
		}
	}
	if none == 0 || none == 300 {
		t.Fatalf("in %d of 300 fetches no size was small enough", none)
	}
}
