package place

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/reknit/reknit/services/planner/estimate"
)

func randomNetwork(random *rand.Rand, nodes int) Network {
	var n Network
	for range nodes {
		n.DelaySeconds = append(n.DelaySeconds, make([]float64, nodes))
		n.BytesPerSecond = append(n.BytesPerSecond, make([]float64, nodes))
	}
	for a := range nodes {
		for b := range a {
			delay, speed := float64(random.IntN(9)), float64(1+random.IntN(8))
			n.DelaySeconds[a][b], n.DelaySeconds[b][a] = delay, delay
			n.BytesPerSecond[a][b], n.BytesPerSecond[b][a] = speed, speed
		}
	}
	return n
}

// grid is equal pipelines, with a layer for each stage, on a random network; some nodes hold a layer.
func grid(random *rand.Rand, pipelines, stages int) (Problem, Communication) {
	p := Problem{LayerBytes: slices.Repeat([]int64{4}, stages), Holds: make([]estimate.Range, pipelines*stages)}
	for pipeline := range pipelines {
		for stage := range stages {
			p.Places = append(p.Places, Place{pipeline, stage, span(stage, stage+1)})
			if first := random.IntN(stages + 1); first < stages {
				p.Holds[pipeline*stages+stage] = span(first, first+1)
			}
		}
	}
	return p, Communication{
		Network: randomNetwork(random, pipelines*stages), GradientBytes: slices.Repeat([]float64{5}, stages),
		ActivationBytes: 7, Rounds: func(int) float64 { return 1.5 }, FetchBytesPerSecond: 2, HorizonSteps: 3,
		Moves: 4000,
	}
}

// inOrder is the layout in which each node has the place of its number.
func inOrder(p Problem, c Communication) *layout {
	t := newTraffic(p.Places, len(p.Holds), c.GradientBytes, c.Rounds)
	return newLayout(t, newLinks(c.Network), c.ActivationBytes, p.moving(t, c), upTo(len(p.Holds)))
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, math.Abs(a)) }

// The twin works everything out from scratch.
func TestSwapsKeepTheFiguresRightAndCanBeUndone(t *testing.T) {
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 4))
		p, c := grid(random, 1+random.IntN(3), 1+random.IntN(3))
		l := inOrder(p, c)
		l.slope = 0.5
		before := l.energy()
		for range 10 {
			i, j := random.IntN(len(l.nodeOf)), random.IntN(len(l.nodeOf))
			l.swap(i, j)
			l.settle(i, j)
		}
		twin := inOrder(p, c)
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

// The twin tries every order of the pipeline's nodes.
func TestNoOrderOfAPipelineIsBetterThanReseated(t *testing.T) {
	for seed := range uint64(200) {
		p, c := grid(rand.New(rand.NewPCG(seed, 5)), 2, 4)
		clear(p.Holds) // moving is free
		l, twin := inOrder(p, c), inOrder(p, c)
		best := twin.cost()
		var nodes []int
		for _, column := range twin.traffic.columns {
			nodes = append(nodes, twin.nodeOf[column[1]])
		}
		permutations(nodes, 0, func(nodes []int) {
			for stage, node := range nodes {
				twin.nodeOf[twin.traffic.columns[stage][1]] = node
			}
			twin.measure()
			best = min(best, twin.cost())
		})
		r, _ := newReseating(l)
		r.improve(1, 0)
		if !near(l.cost(), best) {
			t.Fatalf("seed %d: reseated %v, best %v", seed, l.cost(), best)
		}
	}
}

// The twin tries every order of the nodes.
func TestARefinedGridIsAboutAsGoodAsTheBestOfAllLayouts(t *testing.T) {
	worse := 0
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 6))
		p, c := grid(random, 1+random.IntN(2), 1+random.IntN(3))
		twin, start := inOrder(p, c), Assignment{NodeOf: upTo(len(p.Places))}
		before, best := twin.cost(), math.Inf(1)
		permutations(twin.nodeOf, 0, func([]int) {
			twin.measure()
			best = min(best, twin.cost())
		})
		refined := p.Refine(start, c)
		copy(twin.nodeOf, refined.NodeOf)
		twin.measure()
		if cost := twin.cost(); cost > before+1e-9 || cost < best-1e-9 {
			t.Fatalf("seed %d: %v before, %v refined, %v at best", seed, before, cost, best)
		} else if !near(cost, best) {
			worse++
		}
		if !reflectsMoves(p, refined) {
			t.Fatalf("seed %d: %+v", seed, refined)
		}
	}
	if worse > 5 {
		t.Fatalf("%d of 100 grids are not placed at the least cost", worse)
	}
}

// reflectsMoves reports whether an assignment tells of each node what it must fetch.
func reflectsMoves(p Problem, a Assignment) bool {
	missing := make([]int64, len(p.Holds))
	for seat, node := range a.NodeOf {
		missing[node] = p.missing(node, seat)
	}
	return slices.Equal(missing, a.MissingBytes)
}
