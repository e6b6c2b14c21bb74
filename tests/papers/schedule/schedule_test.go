package schedule_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/reknit/reknit/tests/papers/schedule"
)

// meet reports whether two items share a device.
func meet(devices [][]int, a, b int) bool {
	return slices.ContainsFunc(devices, func(items []int) bool {
		return slices.Contains(items, a) && slices.Contains(items, b)
	})
}

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

// checkTimeline wants every item reduced for its weight within the makespan, and no device with two items at a time.
func checkTimeline(t *testing.T, timeline schedule.Timeline, weights []int64, devices [][]int) {
	t.Helper()
	done := make([]int64, len(weights))
	last := int64(0)
	for i, a := range timeline.Pieces {
		done[a.Item] += a.End - a.Start
		last = max(last, a.End)
		if a.Start < 0 || a.End <= a.Start {
			t.Fatalf("piece %v", a)
		}
		for _, b := range timeline.Pieces[:i] {
			if a.Start < b.End && b.Start < a.End && (a.Item == b.Item || meet(devices, a.Item, b.Item)) {
				t.Fatalf("pieces %v and %v overlap on a device", b, a)
			}
		}
	}
	for item, weight := range weights {
		if done[item] != weight {
			t.Fatalf("item %d is reduced for %d of %d", item, done[item], weight)
		}
	}
	if last != timeline.Makespan {
		t.Fatalf("ends at %d, said %d", last, timeline.Makespan)
	}
}

// mostLoaded is what the busiest device or the heaviest item needs.
func mostLoaded(weights []int64, devices [][]int) int64 {
	most := int64(0)
	for _, weight := range weights {
		most = max(most, weight)
	}
	for _, items := range devices {
		sum := int64(0)
		for _, item := range items {
			sum += weights[item]
		}
		most = max(most, sum)
	}
	return most
}

func TestAWrappedTimelineIsAsLongAsTheMostLoadedDevice(t *testing.T) {
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 4))
		items := 1 + random.IntN(12)
		weights, devices := randomWeights(random, items), randomRuns(random, items)
		timeline, err := schedule.WrapAround(weights, devices)
		if err != nil {
			t.Fatal(err)
		}
		checkTimeline(t, timeline, weights, devices)
		most := mostLoaded(weights, devices)
		if timeline.Makespan != most || timeline.AtLeast != most {
			t.Fatalf("seed %d: makespan %d, most loaded device %d", seed, timeline.Makespan, most)
		}
		total, whole := int64(0), 0
		for _, weight := range weights {
			if total += weight; weight > 0 {
				whole++
			}
		}
		if splits := len(timeline.Pieces) - whole; most > 0 && int64(splits) > total/most {
			t.Fatalf("seed %d: %d splits for a row of %d on a timeline of %d", seed, splits, total, most)
		}
	}
}

func TestNeighboursNeedAsManyRoundsAsTheFullestDeviceHasItems(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 2))
		items := 1 + random.IntN(200)
		devices := randomRuns(random, items)
		roundOf, err := schedule.FewestRounds(items, devices)
		if err != nil {
			t.Fatal(err)
		}
		fullest := 1
		for _, own := range devices {
			fullest = max(fullest, len(own))
			taken := map[int]bool{}
			for _, item := range own {
				if taken[roundOf[item]] {
					t.Fatalf("seed %d: a device has two of %v in round %d", seed, own, roundOf[item])
				}
				taken[roundOf[item]] = true
			}
		}
		if last := slices.Max(roundOf); last >= fullest {
			t.Fatalf("seed %d: %d rounds, the fullest device has %d items", seed, last+1, fullest)
		}
	}
}

func TestItemsThatAreNotNeighboursCannotWrap(t *testing.T) {
	if _, err := schedule.WrapAround([]int64{1, 1, 1}, [][]int{{0, 2}}); !errors.Is(err, schedule.ErrNotContiguous) {
		t.Errorf("error %v, expected %v", err, schedule.ErrNotContiguous)
	}
}

// bestMakespan tries every order, each item as early as the ones before it on its devices allow.
func bestMakespan(weights []int64, devices [][]int) int64 {
	best := int64(1 << 62)
	end, placed := make([]int64, len(weights)), make([]bool, len(weights))
	var try func(count int, makespan int64)
	try = func(count int, makespan int64) {
		if count == len(weights) {
			best = min(best, makespan)
			return
		}
		for item, weight := range weights {
			if placed[item] {
				continue
			}
			start := int64(0)
			for other := range weights {
				if placed[other] && weights[other] > 0 && meet(devices, item, other) {
					start = max(start, end[other])
				}
			}
			placed[item], end[item] = true, start+weight
			try(count+1, max(makespan, start+weight))
			placed[item] = false
		}
	}
	try(0, 0)
	return best
}

func TestAnUnsplitTimelineIsAsShortAsTheBestOfAllOrders(t *testing.T) {
	for seed := range uint64(400) {
		random := rand.New(rand.NewPCG(seed, 5))
		items := 1 + random.IntN(6)
		weights, devices := randomWeights(random, items), randomSets(random, items)
		if seed%2 == 0 {
			devices = randomRuns(random, items)
		}
		for item := range weights {
			weights[item]++ // an item without weight could only lengthen an order
		}
		timeline := schedule.Unsplit(weights, devices)
		checkTimeline(t, timeline, weights, devices)
		if best := bestMakespan(weights, devices); timeline.Makespan != best || timeline.AtLeast != best {
			t.Fatalf("seed %d: makespan %d, at least %d, best %d for %v on %v",
				seed, timeline.Makespan, timeline.AtLeast, best, weights, devices)
		}
	}
}

func TestItemsWithoutWeightTakeNoTime(t *testing.T) {
	timeline := schedule.Unsplit([]int64{0, 3, 0}, [][]int{{0, 1, 2}})
	if timeline.Makespan != 3 || len(timeline.Pieces) != 1 {
		t.Errorf("timeline %+v", timeline)
	}
}
