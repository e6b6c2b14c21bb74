package rounds_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/reknit/reknit/services/restorer/rounds"
)

// meet reports whether two items share a device.
func meet(devices [][]int, a, b int) bool {
	return slices.ContainsFunc(devices, func(items []int) bool {
		return slices.Contains(items, a) && slices.Contains(items, b)
	})
}

// bestCost tries every way to put items into rounds and returns the least sum of the largest weights.
func bestCost(weights []int64, devices [][]int) int64 {
	roundOf := make([]int, len(weights))
	best := int64(1 << 62)
	var try func(item, open int)
	try = func(item, open int) {
		if item == len(weights) {
			longest, cost := make([]int64, open), int64(0)
			for i, round := range roundOf {
				longest[round] = max(longest[round], weights[i])
			}
			for _, length := range longest {
				cost += length
			}
			best = min(best, cost)
			return
		}
		for round := range open + 1 {
			clash := false
			for other := range item {
				clash = clash || roundOf[other] == round && meet(devices, item, other)
			}
			if !clash {
				roundOf[item] = round
				try(item+1, max(open, round+1))
			}
		}
	}
	try(0, 0)
	return best
}

// checkColouring recounts what a colouring says about itself.
func checkColouring(t *testing.T, c rounds.Colouring, weights []int64, devices [][]int) {
	t.Helper()
	longest, cost := make([]int64, c.Rounds), int64(0)
	for item, round := range c.RoundOf {
		longest[round] = max(longest[round], weights[item])
		for other := range item {
			if c.RoundOf[other] == round && meet(devices, item, other) {
				t.Fatalf("items %d and %d share a device and round %d", other, item, round)
			}
		}
	}
	for _, length := range longest {
		cost += length
	}
	if len(c.RoundOf) != len(weights) || cost != c.Cost || c.AtLeast > c.Cost {
		t.Fatalf("costs %d, said %d and at least %d", cost, c.Cost, c.AtLeast)
	}
}

const effort = 10_000_000

func ones(n int) []int64 { return slices.Repeat([]int64{1}, n) }

func randomWeights(random *rand.Rand, n int) []int64 {
	weights := make([]int64, n)
	for item := range weights {
		weights[item] = random.Int64N(8)
	}
	return weights
}

// randomSets gives each device any items; randomRuns gives each a run of neighbours.
func randomSets(random *rand.Rand, items int) [][]int {
	devices := make([][]int, random.IntN(7))
	for d := range devices {
		devices[d] = random.Perm(items)[:random.IntN(min(4, items)+1)]
		slices.Sort(devices[d])
	}
	return devices
}

func randomRuns(random *rand.Rand, items int) [][]int {
	devices := make([][]int, 1+random.IntN(8))
	for d := range devices {
		first := random.IntN(items)
		for item := first; item < items && (item == first || random.IntN(3) > 0); item++ {
			devices[d] = append(devices[d], item)
		}
	}
	return devices
}

func TestRoundsAreAsFewAndAsShortAsTheBestOfAllColourings(t *testing.T) {
	for seed := range uint64(1500) {
		random := rand.New(rand.NewPCG(seed, 1))
		items := random.IntN(8)
		weights := randomWeights(random, items)
		devices := randomSets(random, items)
		if items > 0 && seed%2 == 0 {
			devices = randomRuns(random, items)
		}
		fewest, err := rounds.Colour(ones(items), devices, effort)
		if err != nil {
			t.Fatal(err)
		}
		checkColouring(t, fewest, ones(items), devices)
		if best := bestCost(ones(items), devices); int64(fewest.Rounds) != best || fewest.AtLeast != best {
			t.Fatalf("seed %d: %d rounds, at least %d, best %d for %v", seed, fewest.Rounds, fewest.AtLeast, best,
				devices)
		}
		shortest, err := rounds.Colour(weights, devices, effort)
		if err != nil {
			t.Fatal(err)
		}
		checkColouring(t, shortest, weights, devices)
		if best := bestCost(weights, devices); shortest.Cost != best || shortest.AtLeast != best {
			t.Fatalf("seed %d: sum %d, at least %d, best %d for %v on %v",
				seed, shortest.Cost, shortest.AtLeast, best, weights, devices)
		}
	}
}

func TestRoundsOfContiguousItemsAreThoseOfTheFullestDevice(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 2))
		items := 1 + random.IntN(200)
		devices := randomRuns(random, items)
		most := 1
		for _, device := range devices {
			most = max(most, len(device))
		}
		c, err := rounds.Colour(ones(items), devices, effort)
		if err != nil {
			t.Fatal(err)
		}
		checkColouring(t, c, ones(items), devices)
		if c.Rounds != most || c.AtLeast != int64(most) {
			t.Fatalf("seed %d: %d rounds, at least %d, fullest device %d", seed, c.Rounds, c.AtLeast, most)
		}
	}
}

func TestAColouringTooHardToProveIsStillProper(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 3))
	const items = 150
	devices := make([][]int, 120)
	for d := range devices {
		devices[d] = random.Perm(items)[:6]
		slices.Sort(devices[d])
	}
	c, err := rounds.Colour(ones(items), devices, effort)
	if err != nil {
		t.Fatal(err)
	}
	checkColouring(t, c, ones(items), devices)
	if c.AtLeast < 6 {
		t.Errorf("at least %d rounds, but a device has six items", c.AtLeast)
	}
}

func TestItemsOutOfOrderOrBoundsAreRefused(t *testing.T) {
	for name, devices := range map[string][][]int{
		"descending": {{1, 0}}, "twice": {{1, 1}}, "unknown": {{2}}, "negative": {{-1}},
	} {
		if _, err := rounds.Colour(ones(2), devices, effort); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := rounds.Colour([]int64{-1}, nil, effort); err == nil {
		t.Error("accepted a negative weight")
	}
}
