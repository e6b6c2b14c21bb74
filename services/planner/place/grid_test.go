package place

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

var brief = Effort{Moves: 20_000, Mixtures: 200_000}

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
				g.Network.DelaySeconds[a][b], g.Network.BytesPerSecond[a][b] = inside.DelaySeconds[x][y], 1+inside.BytesPerSecond[x][y]
			}
		}
	}
	return g
}

// leastOf is the least value of any layout.
func leastOf(l *layout, value func() float64) float64 {
	best := math.Inf(1)
	permutations(l.nodeOf, 0, func([]int) {
		l.measure()
		best = min(best, value())
	})
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
		l := g.layout()
		best := leastOf(l, l.communication)
		dataParallel, pipeline := g.Network.Cost(got.Groups, g.GradientBytes, g.ActivationBytes)
		cost := got.CommunicationSeconds()
		if !near(dataParallel, got.DataParallelSeconds) || !near(pipeline, got.PipelineSeconds) {
			t.Fatalf("seed %d: says %+v, its groups cost %v and %v", seed, got, dataParallel, pipeline)
		}
		if cost < best-1e-9 || got.LowerBoundSeconds > best+1e-9 || got.Optimal && !near(cost, best) {
			t.Fatalf("seed %d: cost %v, bound %v, optimal %v; the least possible is %v", seed, cost, got.LowerBoundSeconds, got.Optimal, best)
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
		l := g.layout()
		r := newRuns(l, l.links.classes())
		if r == nil {
			continue
		}
		best := leastOf(l, l.communication)
		proven := r.cheaper(math.Inf(1), g.Stages, math.MaxInt)
		if !proven || !near(r.limit, best) {
			t.Fatalf("seed %d: %+v: found %v, the least possible is %v", seed, g, r.limit, best)
		}
		if r.cheaper(best*(1-exactness), g.Stages, math.MaxInt); r.best != nil {
			t.Fatalf("seed %d: found %v below the least possible", seed, r.best)
		}
	}
}

// The twin tries all layouts and counts the runs of each.
func TestNoPathOfFewRunsIsCheaperThanTheOneFound(t *testing.T) {
	for seed := range uint64(200) {
		g := randomGrid(rand.New(rand.NewPCG(seed, 9)))
		l := g.layout()
		r := newRuns(l, l.links.classes())
		if r == nil {
			continue
		}
		for most := 1; most <= g.Stages; most++ {
			best := math.Inf(1)
			permutations(l.nodeOf, 0, func([]int) {
				if runsOf(l, r.classes) <= most {
					l.measure()
					best = min(best, l.communication())
				}
			})
			proven := r.ofFew(most, math.Inf(1), g.Stages, math.MaxInt)
			if !proven || r.limit != best && !near(r.limit, best) {
				t.Fatalf("seed %d: %+v: at most %d runs: found %v, the least possible is %v", seed, g, most, r.limit, best)
			}
		}
	}
}

// runsOf is the number of runs of stages with as many devices of each class.
func runsOf(l *layout, classes [][]int) int {
	mixtures := [][]int{}
	for column := range l.columns {
		counts := make([]int, len(classes))
		for _, node := range l.members(column) {
			counts[slices.IndexFunc(classes, func(class []int) bool { return slices.Contains(class, node) })]++
		}
		mixtures = append(mixtures, counts)
	}
	return len(slices.CompactFunc(mixtures, slices.Equal))
}

func TestTheFloorIsBelowEveryLayout(t *testing.T) {
	for seed := range uint64(300) {
		l := randomGrid(rand.New(rand.NewPCG(seed, 3))).layout()
		if best := leastOf(l, l.communication); l.floor() > best+1e-9 {
			t.Fatalf("seed %d: floor %v above %v", seed, l.floor(), best)
		}
	}
}

// The twin works everything out from scratch.
func TestSwapsKeepTheFiguresRightAndCanBeUndone(t *testing.T) {
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 4))
		g := randomGrid(random)
		g.Previous, g.HorizonSteps, g.StateBytes = g.inOrder(), 3, 4
		l := g.layout()
		l.slope = 0.5
		before := l.energy()
		for range 10 {
			i, j := random.IntN(len(l.nodeOf)), random.IntN(len(l.nodeOf))
			l.swap(i, j)
			l.settle(i, j)
		}
		twin := g.layout()
		twin.slope = 0.5
		copy(twin.nodeOf, l.nodeOf)
		twin.measure()
		if !near(l.energy(), twin.energy()) || !near(l.cost(), twin.cost()) {
			t.Fatalf("seed %d: %v after swaps, %v from scratch", seed, l.energy(), twin.energy())
		}
		if l.undo(); l.energy() != before {
			t.Fatalf("seed %d: %v undone, %v before", seed, l.energy(), before)
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

// The twin tries every order of the pipeline's nodes.
func TestNoOrderOfAPipelineIsBetterThanReseated(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 5))
		g := Grid{Network: randomNetwork(random, 8), Pipelines: 2, Stages: 4, GradientBytes: 5, ActivationBytes: 7}
		l, twin := g.layout(), g.layout()
		for e := range l.edges { // transfers that count several times
			l.edges[e].rounds, twin.edges[e].rounds = 1.5, 1.5
		}
		l.measure()
		twin.measure()
		best := twin.cost()
		nodes := []int{}
		for _, column := range twin.columns {
			nodes = append(nodes, twin.nodeOf[column[1]])
		}
		permutations(nodes, 0, func(nodes []int) {
			for stage, node := range nodes {
				twin.nodeOf[twin.columns[stage][1]] = node
			}
			twin.measure()
			best = min(best, twin.cost())
		})
		newReseating(l).improve(1)
		if !near(l.cost(), best) {
			t.Fatalf("seed %d: reseated %v, best %v", seed, l.cost(), best)
		}
	}
}

func TestThePreviousLayoutIsKeptWhereMovingDoesNotPay(t *testing.T) {
	moved := 0
	for seed := range uint64(60) {
		g := randomGrid(rand.New(rand.NewPCG(seed, 6)))
		free, _ := g.Place(brief)
		g.Previous, g.StateBytes = g.inOrder(), 50
		kept := g.layout().communication()
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
				t.Fatalf("seed %d: moving would pay: %v s a step, %v when free", seed, got.CommunicationSeconds(), free.CommunicationSeconds())
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
	g := Grid{Network: randomNetwork(rand.New(rand.NewPCG(1, 7)), 12), Pipelines: 3, Stages: 4, GradientBytes: 5, ActivationBytes: 7}
	one, _ := g.Place(brief)
	two, _ := g.Place(brief)
	if !slices.EqualFunc(one.Groups, two.Groups, slices.Equal) {
		t.Fatalf("%v and %v", one.Groups, two.Groups)
	}
}

func TestAGridThatDoesNotFitItsNetworkIsRefusedByName(t *testing.T) {
	if _, err := (Grid{Network: randomNetwork(rand.New(rand.NewPCG(1, 8)), 5), Pipelines: 2, Stages: 2}).Place(brief); err == nil ||
		err.Error() != "place: expected links of 4 devices, got 5" {
		t.Fatalf("got %v", err)
	}
}
