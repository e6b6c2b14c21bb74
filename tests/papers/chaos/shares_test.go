package chaos_test

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/reknit/reknit/tests/papers/chaos"
)

// greedy is Chaos's own algorithm: shard after shard to the neighbour that would finish it first.
func greedy(neighbours []chaos.Neighbour, shards int64, use chaos.Use) []int64 {
	counts := make([]int64, len(neighbours))
	if use == chaos.EveryNeighbour {
		for u := range counts {
			counts[u] = 1
			shards--
		}
	}
	for range shards {
		best := 0
		for u, n := range neighbours {
			b := neighbours[best]
			if n.StartNanoseconds+(counts[u]+1)*n.ShardNanoseconds < b.StartNanoseconds+(counts[best]+1)*b.ShardNanoseconds {
				best = u
			}
		}
		counts[best]++
	}
	return counts
}

func finish(neighbours []chaos.Neighbour, counts []int64) int64 {
	last := int64(0)
	for u, n := range neighbours {
		if counts[u] > 0 {
			last = max(last, n.StartNanoseconds+counts[u]*n.ShardNanoseconds)
		}
	}
	return last
}

// bestFinish tries every way to divide the shards.
func bestFinish(neighbours []chaos.Neighbour, shards, least int64) int64 {
	if len(neighbours) == 1 {
		return finish(neighbours, []int64{shards})
	}
	best := int64(1 << 62)
	rest := int64(len(neighbours)-1) * least
	for first := least; first <= shards-rest; first++ {
		own := finish(neighbours[:1], []int64{first})
		best = min(best, max(own, bestFinish(neighbours[1:], shards-first, least)))
	}
	return best
}

func randomNeighbours(random *rand.Rand, most int, longest int64) []chaos.Neighbour {
	neighbours := make([]chaos.Neighbour, 1+random.IntN(most))
	for u := range neighbours {
		neighbours[u] = chaos.Neighbour{
			StartNanoseconds: random.Int64N(longest), ShardNanoseconds: 1 + random.Int64N(longest),
		}
	}
	return neighbours
}

func TestAnAllocationIsTheGreedyOneAndAsGoodAsTryingEveryOne(t *testing.T) {
	for seed := range uint64(3000) {
		random := rand.New(rand.NewPCG(seed, 1))
		neighbours := randomNeighbours(random, 4, 1+random.Int64N(40))
		shards := random.Int64N(12)
		for _, use := range []chaos.Use{chaos.AnyNeighbour, chaos.EveryNeighbour} {
			a, err := chaos.Allocate(neighbours, shards, use)
			if use == chaos.EveryNeighbour && shards < int64(len(neighbours)) {
				if !errors.Is(err, chaos.ErrTooFewShards) {
					t.Fatalf("seed %d: %d shards for %d neighbours: error %v", seed, shards, len(neighbours), err)
				}
				continue
			}
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if want := greedy(neighbours, shards, use); !reflect.DeepEqual(a.Shards, want) {
				t.Fatalf("seed %d: %d shards, use %t, neighbours %v: %v, greedy %v", seed, shards, use, neighbours,
					a.Shards, want)
			}
			least := int64(0)
			if use == chaos.EveryNeighbour {
				least = 1
			}
			if best := bestFinish(neighbours, shards, least); a.Nanoseconds != best ||
				finish(neighbours, a.Shards) != best {
				t.Fatalf("seed %d: said %d ns, is %d, best %d", seed, a.Nanoseconds, finish(neighbours, a.Shards), best)
			}
		}
	}
}

func TestManyShardsAreAllocatedAsTheGreedyAlgorithmWould(t *testing.T) {
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 2))
		neighbours := randomNeighbours(random, 20, 1_000_000)
		shards := random.Int64N(5000)
		a, err := chaos.Allocate(neighbours, shards, chaos.AnyNeighbour)
		if err != nil {
			t.Fatal(err)
		}
		if want := greedy(neighbours, shards, chaos.AnyNeighbour); !reflect.DeepEqual(a.Shards, want) {
			t.Fatalf("seed %d: %v, greedy %v", seed, a.Shards, want)
		}
	}
}

func TestNoAllocationBeatsTheFluidTime(t *testing.T) {
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 3))
		neighbours := randomNeighbours(random, 6, 1000)
		shards := 1 + random.Int64N(200)
		fluid := chaos.FluidNanoseconds(neighbours, shards)
		a, err := chaos.Allocate(neighbours, shards, chaos.AnyNeighbour)
		if err != nil {
			t.Fatal(err)
		}
		if float64(a.Nanoseconds) < fluid*(1-1e-12) {
			t.Fatalf("seed %d: %d ns is less than fluid %v", seed, a.Nanoseconds, fluid)
		}
		// What flows by the fluid time is all shards, neither more nor less.
		flowed := 0.0
		for _, n := range neighbours {
			flowed += max(0, fluid-float64(n.StartNanoseconds)) / float64(n.ShardNanoseconds)
		}
		if flowed < float64(shards)*(1-1e-9) || flowed > float64(shards)*(1+1e-9) {
			t.Fatalf("seed %d: %v of %d shards flow by the fluid time", seed, flowed, shards)
		}
	}
}

func TestNeighboursOutOfBoundsAreRefused(t *testing.T) {
	for name, neighbours := range map[string][]chaos.Neighbour{
		"none":           {},
		"negative start": {{-1, 1}},
		"free shards":    {{0, 0}},
		"a century":      {{0, 1 << 61}},
		"an eternity":    {{0, 1 << 50}},
	} {
		if _, err := chaos.Allocate(neighbours, 1<<20, chaos.AnyNeighbour); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestLargerShardsNeverFinishEarlierAndTheLargestGoodOneIsChosen(t *testing.T) {
	sizes := []int64{1, 2, 4, 8, 16, 32, 64, 128, 256}
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 4))
		neighbours := randomNeighbours(random, 6, 100)
		units := 256 * (1 + random.Int64N(200))
		for _, use := range []chaos.Use{chaos.AnyNeighbour, chaos.EveryNeighbour} {
			weighed, err := chaos.WeighSizes(neighbours, units, sizes, use)
			if err != nil {
				t.Fatal(err)
			}
			fluid := chaos.FluidNanoseconds(neighbours, units)
			best, found := int64(0), false
			for k, size := range weighed {
				if size.Nanoseconds < 0 {
					if use == chaos.AnyNeighbour || size.Shards >= int64(len(neighbours)) {
						t.Fatalf("seed %d: size %d was left out", seed, size.Units)
					}
					continue
				}
				if k > 0 && size.Nanoseconds < weighed[k-1].Nanoseconds {
					t.Fatalf("seed %d: size %d is faster than size %d", seed, size.Units, weighed[k-1].Units)
				}
				if float64(size.Nanoseconds) <= 1.01*fluid {
					best, found = size.Units, true
				}
			}
			largest, ok := chaos.LargestSize(weighed, fluid)
			if ok != found || largest.Units != best {
				t.Fatalf("seed %d: chose %d (%t), expected %d (%t)", seed, largest.Units, ok, best, found)
			}
		}
	}
}

func BenchmarkAHundredMillionShardsFromSixteenNeighbours(b *testing.B) {
	random := rand.New(rand.NewPCG(5, 5))
	neighbours := make([]chaos.Neighbour, 16)
	for u := range neighbours {
		neighbours[u] = chaos.Neighbour{
			StartNanoseconds: random.Int64N(200_000_000), ShardNanoseconds: 1000 + random.Int64N(20_000),
		}
	}
	for b.Loop() {
		if _, err := chaos.Allocate(neighbours, 100_000_000, chaos.AnyNeighbour); err != nil {
			b.Fatal(err)
		}
	}
}
