package ring

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// best is the slow, obviously right twin: the dearest edge and the sum of the best of all rings.
func best(c Costs) (worst, sum float64, order []int) {
	var try func(way []int)
	try = func(way []int) {
		if len(way) == c.nodes {
			dearest, total := c.Worst(way), 0.0
			for i, node := range way {
				total += c.Between(node, way[(i+1)%len(way)])
			}
			if order == nil || dearest < worst || dearest == worst && total < sum {
				worst, sum, order = dearest, total, slices.Clone(way)
			}
			return
		}
		for node := range c.nodes {
			if !slices.Contains(way, node) {
				try(append(slices.Clone(way), node))
			}
		}
	}
	try([]int{0})
	return worst, sum, order
}

// drawn has whole costs, so that sums are exact.
func drawn(random *rand.Rand, nodes int, share float64, most int) Costs {
	var edges []Edge
	for a := range nodes {
		for b := range nodes {
			if random.Float64() < share {
				edges = append(edges, Edge{a, b, float64(1 + random.IntN(most))})
			}
		}
	}
	return NewCosts(nodes, 4, edges)
}

func isRing(order []int, nodes int) bool {
	return slices.Equal(slices.Sorted(slices.Values(order)), upTo(nodes)) && (nodes == 0 || order[0] == 0)
}

func upTo(nodes int) []int {
	list := make([]int, nodes)
	for i := range list {
		list[i] = i
	}
	return list
}

func TestASmallRingIsTheBestOfAllAndTheFirstOfThese(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 0))
		c := drawn(random, 2+random.IntN(6), random.Float64(), 1+random.IntN(9))
		if _, _, want := best(c); !slices.Equal(Order(c), want) {
			t.Fatalf("seed %d: %v costs %v at worst, expected %v, %v", seed, Order(c), c.Worst(Order(c)), want, c.Worst(want))
		}
	}
}

// On the largest groups that the twin can judge.
func TestTheLocalSearchComesCloseToTheBestRing(t *testing.T) {
	const runs = 300
	equal, total := 0, 0.0
	for seed := range uint64(runs) {
		random := rand.New(rand.NewPCG(seed, 1))
		c := drawn(random, 8+random.IntN(3), random.Float64(), 9)
		order := begun(improved(c, upTo(c.nodes)))
		if !isRing(order, c.nodes) {
			t.Fatalf("seed %d: %v is no ring of %d nodes", seed, order, c.nodes)
		}
		found, least := c.Worst(order), c.Worst(exact(c))
		if found < least {
			t.Fatalf("seed %d: %v, less than the least %v", seed, found, least)
		}
		if found == least {
			equal++
		}
		total += found / least
	}
	t.Logf("%d of %d are the best, %.3f times it in the mean", equal, runs, total/runs)
	if equal < runs*8/10 || total/runs > 1.1 {
		t.Errorf("%d of %d are the best, %.3f times it in the mean: expected 80 %% and 1.1", equal, runs, total/runs)
	}
}

// The twin puts the node everywhere.
func TestOneMoreNodeIsPutWhereItCostsLeast(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 4))
		c := drawn(random, 2+random.IntN(7), random.Float64(), 1+random.IntN(9))
		order, node := random.Perm(c.nodes), 0
		order, node = order[1:], order[0]
		want := c.Worst(append(slices.Clone(order), node))
		for at := range order {
			want = min(want, c.Worst(slices.Insert(slices.Clone(order), at, node)))
		}
		if got := c.WorstWith(order, node); got != want {
			t.Fatalf("seed %d: %v with %d costs %v at worst, expected %v", seed, order, node, got, want)
		}
	}
}

func TestEqualLinksChangeNothing(t *testing.T) {
	for _, nodes := range []int{0, 1, 2, 3, 4, 10, 11, 1000} {
		if order := Order(NewCosts(nodes, 1, nil)); !slices.Equal(order, upTo(nodes)) {
			t.Errorf("%d equal nodes are ordered as %v", nodes, order)
		}
	}
}

func TestASlowPairIsNoNeighboursWhereThatCanBeAvoided(t *testing.T) {
	for _, nodes := range []int{3, 4, 9, 50, 1000} {
		c := NewCosts(nodes, 1, []Edge{{1, 2, 100}, {0, 1, 50}, {0, 1, 70}})
		order, want := Order(c), 1.0
		switch nodes {
		case 3:
			want = 100 // all pairs are neighbours
		case 4:
			want = 70
		}
		if got := c.Worst(order); got != want || !isRing(order, nodes) {
			t.Errorf("%d nodes: %v costs %v at worst, expected %v", nodes, order, got, want)
		}
	}
}

// twoSites has each second of some nodes at another site.
func twoSites(nodes int) Costs {
	var edges []Edge
	for a := range nodes {
		for b := range a {
			if (a-b)%2 == 1 {
				edges = append(edges, Edge{a, b, 10})
			}
		}
	}
	return NewCosts(nodes, 1, edges)
}

func TestARingOfTwoSitesGoesFromOneToTheOtherOnceAndBack(t *testing.T) {
	const nodes = 200
	c := twoSites(nodes)
	order, crossings := Order(c), 0
	for i, node := range order {
		if c.Between(node, order[(i+1)%nodes]) > 1 {
			crossings++
		}
	}
	if crossings != 2 || !isRing(order, nodes) {
		t.Errorf("%d crossings, expected 2", crossings)
	}
}

func TestTheSearchIsBounded(t *testing.T) {
	const nodes = 1000
	random := rand.New(rand.NewPCG(1, 1))
	var some []Edge
	for range 20 {
		some = append(some, Edge{random.IntN(nodes), random.IntN(nodes), 9}, Edge{random.IntN(nodes), random.IntN(nodes), 0.5})
	}
	few := newSearch(NewCosts(nodes, 1, some), upTo(nodes))
	for few.left > 0 && few.pass() {
	}
	if looked := effort - few.left; looked > 3*nodes*len(some) {
		t.Errorf("%d looks at an edge where 40 of %d links are unlike the others", looked, nodes*nodes)
	}
	var all []Edge
	for a := range nodes {
		for b := range a {
			all = append(all, Edge{a, b, random.Float64()})
		}
	}
	many := newSearch(NewCosts(nodes, 1, all), upTo(nodes))
	for many.left > 0 && many.pass() {
	}
	if looked := effort - many.left; looked > effort+3*nodes {
		t.Errorf("%d looks, expected at most %d", looked, effort)
	}
	t.Logf("the worst of %d drawn edges is %.3f, before it was %.3f", nodes, many.Worst(many.order), many.Worst(upTo(nodes)))
}

func BenchmarkTheOrderOfAThousandNodesOfTwoSites(b *testing.B) {
	c := twoSites(1000)
	for b.Loop() {
		Order(c)
	}
}

func BenchmarkTheOrderOfTenNodesWithDrawnLinks(b *testing.B) {
	c := drawn(rand.New(rand.NewPCG(1, 2)), 10, 1, 1000)
	for b.Loop() {
		Order(c)
	}
}

// atSites has some nodes at a few sites, with the same costs told by sites and by pairs: all that is not as usual, or an own cost of a
// few pairs.
func atSites(random *rand.Rand, nodes int) (told, expanded Costs) {
	sites, pairs := make([]int, nodes), map[[2]int]float64{}
	for node := range sites {
		sites[node] = 7 * random.IntN(4)
	}
	var between, own []Edge
	for a := range 4 {
		for b := range a + 1 {
			if random.IntN(3) > 0 {
				between = append(between, Edge{7 * a, 7 * b, float64(1 + random.IntN(9))})
			}
		}
	}
	for a := range nodes {
		for b := range a {
			for _, edge := range between {
				if low, high := min(sites[a], sites[b]), max(sites[a], sites[b]); low == edge.B && high == edge.A {
					pairs[[2]int{b, a}] = edge.Cost
				}
			}
			if random.IntN(8) == 0 {
				pairs[[2]int{b, a}] = float64(1 + random.IntN(9))
				own = append(own, Edge{a, b, pairs[[2]int{b, a}]})
			}
		}
	}
	var all []Edge
	for pair, cost := range pairs {
		all = append(all, Edge{pair[0], pair[1], cost})
	}
	return NewCosts(nodes, 4, own).WithSites(sites, between), NewCosts(nodes, 4, all)
}

// The twin is told each pair.
func TestWhatSitesCostCountsAsIfEachPairWereTold(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 3))
		told, expanded := atSites(random, 4+random.IntN(7))
		if got, want := Order(told), Order(expanded); !slices.Equal(got, want) {
			t.Fatalf("seed %d: the order is %v, expected %v", seed, got, want)
		}
		for _, pace := range []float64{1, 2, 3, 4, 5, 7, 9} {
			if got, want := told.Linked(pace), expanded.Linked(pace); !slices.Equal(got, want) {
				t.Fatalf("seed %d: at pace %v %v are linked, expected %v", seed, pace, got, want)
			}
		}
	}
}

// The nodes of eight sites are dealt in turn, so that no two of one stand next to each other before.
func TestARingCrossesFromSiteToSiteOnceForEach(t *testing.T) {
	const nodes, sites = 1000, 8
	at := make([]int, nodes)
	for node := range at {
		at[node] = node % sites
	}
	var between []Edge
	for a := range sites {
		for b := range a { // the sites stand in a circle
			between = append(between, Edge{a, b, float64(10 + min(a-b, b+sites-a))})
		}
	}
	c := NewCosts(nodes, 1, []Edge{{0, 8, 50}}).WithSites(at, between)
	order, crossings := Order(c), 0
	for i, node := range order {
		if at[node] != at[order[(i+1)%nodes]] {
			crossings++
		}
	}
	if worst := c.Worst(order); crossings != sites || worst != 11 || !isRing(order, nodes) {
		t.Errorf("%d crossings and an edge of %v at worst, expected %d and 11", crossings, worst, sites)
	}
	if looked := effort - searched(c); looked > 100*nodes {
		t.Errorf("%d looks at an edge", looked)
	}
}

// searched is the effort that the local search leaves after a ring that keeps sites together.
func searched(c Costs) int {
	order := upTo(c.nodes)
	c.sort(order)
	s := newSearch(c, order)
	for s.left > 0 && s.pass() {
	}
	return s.left
}
