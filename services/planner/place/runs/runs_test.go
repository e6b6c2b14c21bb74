package runs

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// drawn is a small network of up to three classes, and a size of groups that divides its devices.
func drawn(random *rand.Rand) (n Network, size int) {
	size = 1 + random.IntN(3)
	devices, classes := size*(1+random.IntN(4)), 1+random.IntN(3)
	for class := range classes {
		count := devices
		if class < classes-1 {
			count = random.IntN(devices + 1)
		}
		if devices -= count; count > 0 {
			n.Devices = append(n.Devices, count)
		}
	}
	for a := range n.Devices {
		n.Hop, n.Load = append(n.Hop, make([]float64, len(n.Devices))), append(n.Load, make([]float64, len(n.Devices)))
		for b := range a + 1 {
			n.Hop[a][b], n.Load[a][b] = float64(1+random.IntN(9)), float64(1+random.IntN(9))
			n.Hop[b][a], n.Load[b][a] = n.Hop[a][b], n.Load[a][b]
		}
	}
	return n, size
}

// twin tries every order of the devices, by class, and returns the least cost by the number of runs.
func (n Network) twin(size int) map[int]float64 {
	var left []int
	total := 0
	for _, count := range n.Devices {
		left, total = append(left, count), total+count
	}
	best, order := map[int]float64{}, make([]int, 0, total)
	var place func()
	place = func() {
		if len(order) == total {
			runs, cost := n.cost(order, size)
			if least, known := best[runs]; !known || cost < least {
				best[runs] = cost
			}
			return
		}
		for class := range left {
			if left[class] > 0 {
				left[class]--
				order = append(order, class)
				place()
				order = order[:len(order)-1]
				left[class]++
			}
		}
	}
	place()
	return best
}

// cost is that of groups of devices, whose classes are in order, each paired with the next as they stand, and how many runs these
// are.
func (n Network) cost(order []int, size int) (runs int, cost float64) {
	load, hops := 0.0, 0.0
	var last []int
	for at := 0; at < len(order); at += size {
		group := order[at : at+size]
		counts, slowest := make([]int, len(n.Devices)), 0.0
		for i, class := range group {
			counts[class]++
			own := 0.0
			for j, other := range group {
				if i != j {
					own += n.Load[class][other]
				}
			}
			load = max(load, own)
			if at > 0 {
				slowest = max(slowest, n.Hop[order[at-size+i]][class])
			}
		}
		if hops += slowest; !slices.Equal(counts, last) {
			runs++
		}
		last = counts
	}
	return runs, load + hops
}

func TestNoPathOfSoManyRunsIsCheaperThanTheOneFound(t *testing.T) {
	for seed := range uint64(300) {
		n, size := drawn(rand.New(rand.NewPCG(seed, 1)))
		stages := 0
		for _, devices := range n.Devices {
			stages += devices
		}
		stages /= size
		best, least := n.twin(size), math.Inf(1)
		for most := 1; most <= stages; most++ {
			if cost, any := best[most]; any {
				least = min(least, cost)
			}
			path, cost, proven := New(n, size).Cheaper(math.Inf(1), most, math.MaxInt)
			if !proven || cost != least || (path == nil) != math.IsInf(least, 1) {
				t.Fatalf("seed %d: %+v in groups of %d: at most %d runs: found %v of cost %v, proven %v; the least is %v", seed, n, size,
					most, path, cost, proven, least)
			}
			if path != nil && len(path) > most {
				t.Fatalf("seed %d: %d runs, expected %d at most", seed, len(path), most)
			}
		}
	}
}

func TestAPathSeatsEachDeviceOnce(t *testing.T) {
	for seed := range uint64(100) {
		n, size := drawn(rand.New(rand.NewPCG(seed, 2)))
		path, _, _ := New(n, size).Cheaper(math.Inf(1), math.MaxInt, math.MaxInt)
		seated := make([]int, len(n.Devices))
		for _, run := range path {
			inGroup := 0
			for class, count := range run.Counts {
				seated[class] += run.Stages * count
				inGroup += count
			}
			if inGroup != size {
				t.Fatalf("seed %d: a group of %d, expected %d", seed, inGroup, size)
			}
		}
		if !slices.Equal(seated, n.Devices) {
			t.Fatalf("seed %d: seated are %v of %v", seed, seated, n.Devices)
		}
	}
}

func TestASearchOutOfEffortProvesNothing(t *testing.T) {
	n := Network{Devices: []int{3, 3}, Hop: [][]float64{{1, 2}, {2, 1}}, Load: [][]float64{{1, 2}, {2, 1}}}
	if _, _, proven := New(n, 2).Cheaper(math.Inf(1), 3, 1); proven {
		t.Error("one mixture was looked at, and nothing cheaper is said to be")
	}
}

func TestANetworkOfTooManyClassesIsNotSearched(t *testing.T) {
	if New(Network{Devices: make([]int, MostClasses+1)}, 1) != nil {
		t.Errorf("%d classes are searched, expected %d at most", MostClasses+1, MostClasses)
	}
}
