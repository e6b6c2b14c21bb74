package dtfm

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/reknit/reknit/services/planner/place"
)

var brief = Effort{Moves: 20_000, Mixtures: 200_000}

func randomNetwork(random *rand.Rand, devices int) place.Network {
	var n place.Network
	for range devices {
		n.DelaySeconds = append(n.DelaySeconds, make([]float64, devices))
		n.BytesPerSecond = append(n.BytesPerSecond, make([]float64, devices))
	}
	for a := range devices {
		for b := range a {
			delay, speed := float64(random.IntN(9)), float64(1+random.IntN(8))
			n.DelaySeconds[a][b], n.DelaySeconds[b][a] = delay, delay
			n.BytesPerSecond[a][b], n.BytesPerSecond[b][a] = speed, speed
		}
	}
	return n
}

// randomGrid has few devices; half of the networks have classes of devices with equal links.
func randomGrid(random *rand.Rand) Grid {
	g := Grid{Pipelines: 1 + random.IntN(3), Stages: 1 + random.IntN(3), GradientBytes: 5, ActivationBytes: 7}
	devices := g.Pipelines * g.Stages
	if devices > 6 {
		g.Pipelines, g.Stages, devices = 2, 3, 6
	}
	g.Network = randomNetwork(random, devices)
	if random.IntN(2) == 0 {
		class := make([]int, devices)
		for device := range class {
			class[device] = random.IntN(3)
		}
		inside := randomNetwork(random, 3)
		for a := range devices {
			for b := range devices {
				x, y := class[a], class[b]
				g.Network.DelaySeconds[a][b], g.Network.BytesPerSecond[a][b] = inside.DelaySeconds[x][y],
					1+inside.BytesPerSecond[x][y]
			}
		}
	}
	return g
}

// permutations calls each with every order of values from at on.
func permutations(values []int, at int, each func([]int)) {
	if at == len(values) {
		each(values)
	}
	for i := at; i < len(values); i++ {
		values[at], values[i] = values[i], values[at]
		permutations(values, at+1, each)
		values[at], values[i] = values[i], values[at]
	}
}

// everyLayout calls each with every layout.
func (g Grid) everyLayout(each func(groups [][]int)) {
	permutations(slices.Concat(g.inOrder()...), 0, func(order []int) { each(g.inGroups(order)) })
}

// leastOf is the least communication of any layout.
func leastOf(g Grid) float64 {
	best := math.Inf(1)
	g.everyLayout(func(groups [][]int) { best = min(best, g.Layout(groups).CommunicationSeconds()) })
	return best
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, math.Abs(a)) }

func TestSmallGridsArePlacedAsWellAsByTryingAllLayouts(t *testing.T) {
	worse, proven := 0, 0
	for seed := range uint64(150) {
		g := randomGrid(rand.New(rand.NewPCG(seed, 1)))
		got, err := g.Place(brief)
		if err != nil {
			t.Fatal(err)
		}
		best := leastOf(g)
		dataParallel, pipeline := g.Cost(got.Groups)
		cost := got.CommunicationSeconds()
		if !near(dataParallel, got.DataParallelSeconds) || !near(pipeline, got.PipelineSeconds) {
			t.Fatalf("seed %d: says %+v, its groups cost %v and %v", seed, got, dataParallel, pipeline)
		}
		if cost < best-1e-9 || got.LowerBoundSeconds > best+1e-9 || got.Optimal && !near(cost, best) {
			t.Fatalf("seed %d: cost %v, bound %v, optimal %v; the least possible is %v", seed, cost,
				got.LowerBoundSeconds, got.Optimal, best)
		}
		if !near(cost, best) {
			worse++
		}
		if got.Optimal {
			proven++
		}
	}
	if worse > 0 || proven < 75 {
		t.Fatalf("of 150 grids %d are not placed at the least cost, %d are proven", worse, proven)
	}
}

// The exact search alone, from no layout at all.
func TestRunsOfEqualMixturesReachTheLeastCostOnClassesOfDevices(t *testing.T) {
	for seed := range uint64(300) {
		g := randomGrid(rand.New(rand.NewPCG(seed, 2)))
		e := newExact(g)
		if e == nil {
			continue
		}
		best := leastOf(g)
		_, cost, proven := e.Cheaper(math.Inf(1), g.Stages, math.MaxInt)
		if !proven || !near(cost, best) {
			t.Fatalf("seed %d: %+v: found %v, the least possible is %v", seed, g, cost, best)
		}
		if path, _, _ := e.Cheaper(best*(1-exactness), g.Stages, math.MaxInt); path != nil {
			t.Fatalf("seed %d: found %v below the least possible", seed, path)
		}
	}
}

// The twin tries all layouts and counts the runs of each.
func TestNoPathOfFewRunsIsCheaperThanTheOneFound(t *testing.T) {
	for seed := range uint64(200) {
		g := randomGrid(rand.New(rand.NewPCG(seed, 9)))
		e := newExact(g)
		if e == nil {
			continue
		}
		for most := 1; most <= g.Stages; most++ {
			best := math.Inf(1)
			g.everyLayout(func(groups [][]int) {
				if runsOf(groups, e.classes) <= most {
					best = min(best, g.Layout(groups).CommunicationSeconds())
				}
			})
			_, cost, proven := e.Cheaper(math.Inf(1), most, math.MaxInt)
			if !proven || cost != best && !near(cost, best) {
				t.Fatalf("seed %d: %+v: at most %d runs: found %v, the least possible is %v", seed, g, most, cost, best)
			}
		}
	}
}

// runsOf is the number of runs of stages with as many devices of each class.
func runsOf(groups [][]int, classes [][]int) int {
	mixtures := [][]int{}
	for _, group := range groups {
		counts := make([]int, len(classes))
		for _, node := range group {
			counts[slices.IndexFunc(classes, func(class []int) bool { return slices.Contains(class, node) })]++
		}
		mixtures = append(mixtures, counts)
	}
	return len(slices.CompactFunc(mixtures, slices.Equal))
}

func TestTheFloorIsBelowEveryLayout(t *testing.T) {
	for seed := range uint64(300) {
		g := randomGrid(rand.New(rand.NewPCG(seed, 3)))
		if best := leastOf(g); g.floor() > best+1e-9 {
			t.Fatalf("seed %d: floor %v above %v", seed, g.floor(), best)
		}
	}
}

// inOrder is the layout of devices in order.
func (g Grid) inOrder() (groups [][]int) {
	for stage := range g.Stages {
		groups = append(groups, nil)
		for pipeline := range g.Pipelines {
			groups[stage] = append(groups[stage], stage*g.Pipelines+pipeline)
		}
	}
	return groups
}

func TestThePreviousLayoutIsKeptWhereMovingDoesNotPay(t *testing.T) {
	moved := 0
	for seed := range uint64(60) {
		g := randomGrid(rand.New(rand.NewPCG(seed, 6)))
		free, _ := g.Place(brief)
		g.Previous, g.StateBytes = g.inOrder(), 50
		kept := g.Layout(g.Previous).CommunicationSeconds()
		for _, steps := range []float64{0.01, 1, 1e9} {
			g.HorizonSteps = steps
			got, err := g.Place(brief)
			if err != nil {
				t.Fatal(err)
			}
			stay, least := kept*max(1, steps), free.CommunicationSeconds()*max(1, steps)
			switch {
			case got.CommunicationSeconds()*steps+got.MigrationSeconds > kept*steps+1e-9*kept*steps:
				t.Fatalf("seed %d, %v steps: %v s, staying takes %v", seed, steps, got.Seconds(), stay)
			case steps < 1 && got.MigrationSeconds > kept*steps:
				t.Fatalf("seed %d: moves for %v s to save %v", seed, got.MigrationSeconds, kept*steps)
			case steps > 1 && !near(got.CommunicationSeconds()*steps, least):
				t.Fatalf("seed %d: moving would pay: %v s a step, %v when free", seed, got.CommunicationSeconds(),
					free.CommunicationSeconds())
			}
			if got.MigrationSeconds > 0 {
				moved++
			}
		}
	}
	if moved < 20 {
		t.Fatalf("moved %d times only", moved)
	}
}

func TestTheSameGridHasTheSamePlacement(t *testing.T) {
	g := Grid{Network: randomNetwork(rand.New(rand.NewPCG(1, 7)), 12), Pipelines: 3, Stages: 4, GradientBytes: 5,
		ActivationBytes: 7}
	one, _ := g.Place(brief)
	two, _ := g.Place(brief)
	if !slices.EqualFunc(one.Groups, two.Groups, slices.Equal) {
		t.Fatalf("%v and %v", one.Groups, two.Groups)
	}
}

func TestAGridThatDoesNotFitItsNetworkIsRefusedByName(t *testing.T) {
	if _, err := (Grid{Network: randomNetwork(rand.New(rand.NewPCG(1, 8)), 5), Pipelines: 2,
		Stages: 2}).Place(brief); err == nil ||
		err.Error() != "dtfm: expected links of 4 devices, got 5" {
		t.Fatalf("got %v", err)
	}
}

func TestTheCostOfAPartitionIsItsSlowestGroupAndItsCheapestPath(t *testing.T) {
	// Four devices in a row, one second between neighbours and one more for each step further; bytes cost nothing.
	g := Grid{Network: randomNetwork(rand.New(rand.NewPCG(0, 0)), 4), Pipelines: 2, Stages: 2}
	for a := range 4 {
		for b := range 4 {
			g.Network.DelaySeconds[a][b], g.Network.BytesPerSecond[a][b] = float64(max(a-b, b-a)), 1
		}
	}
	dataParallel, pipeline := g.Cost([][]int{{0, 1}, {2, 3}})
	if dataParallel != 2 || pipeline != 4 {
		t.Errorf("neighbours together: got %v and %v, want there and back over 1, and over 2", dataParallel, pipeline)
	}
	g.GradientBytes = 8
	dataParallel, pipeline = g.Cost([][]int{{0, 2}, {1, 3}})
	if dataParallel != 2*(2+8/2) || pipeline != 2 {
		t.Errorf("neighbours apart: got %v and %v, want half of 8 bytes there and back over 2, and over 1",
			dataParallel, pipeline)
	}
}
