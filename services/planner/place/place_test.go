package place

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/reknit/reknit/services/planner/estimate"
)

func span(first, end int) estimate.Range { return estimate.Range{First: first, End: end} }

func TestNodesKeepWhatTheyHoldWhenAllLinksAreAlike(t *testing.T) {
	assignment, err := Assign(Problem{
		Places:     []Place{{0, 0, span(0, 3)}, {0, 1, span(3, 6)}},
		Holds:      []estimate.Range{span(4, 6), {}, span(0, 2)},
		LayerBytes: []int64{1, 1, 1, 1, 1, 1},
	})
	if err != nil || !slices.Equal(assignment.NodeOf, []int{2, 0}) ||
		!slices.Equal(assignment.MissingBytes, []int64{1, 0, 1}) {
		t.Fatalf("%+v %v", assignment, err)
	}
}

func TestAPairWithoutALinkIsKeptApart(t *testing.T) {
	assignment, err := Assign(Problem{
		Places: []Place{{0, 0, span(0, 1)}, {0, 1, span(1, 2)}, {1, 0, span(0, 1)}, {1, 1, span(1, 2)}},
		Holds:  []estimate.Range{span(0, 1), span(1, 2), span(0, 1), span(1, 2)}, LayerBytes: []int64{5, 5},
		Dear: []Pair{{0, 1, 100}},
	})
	if err != nil || assignment.PairCost != 0 {
		t.Fatalf("%+v %v", assignment, err)
	}
	if !slices.Equal(assignment.MissingBytes, []int64{0, 0, 0, 0}) {
		t.Fatalf("nodes moved although trading pipelines was enough: %+v", assignment)
	}
}

func TestMorePlacesThanNodesAreRefused(t *testing.T) {
	if _, err := Assign(Problem{Places: []Place{{0, 0, span(0, 1)}}}); err == nil {
		t.Fatal("a place was filled by nobody")
	}
}

func TestAPlaceIsRefusedWhereNobodyHasItsMemory(t *testing.T) {
	p := Problem{
		Places: []Place{{0, 0, span(0, 1)}, {0, 1, span(1, 2)}}, NeedBytes: []int64{9, 3},
		Holds: []estimate.Range{span(0, 1), span(1, 2)}, MemoryBytes: []int64{5, 9}, LayerBytes: []int64{5, 5},
	}
	if assignment, err := Assign(p); err != nil || !slices.Equal(assignment.NodeOf, []int{1, 0}) {
		t.Fatalf("the first place needs the second node: %+v %v", assignment, err)
	}
	p.NeedBytes[1] = 6
	if _, err := Assign(p); err == nil {
		t.Fatal("a place was filled beyond its node's memory")
	}
}

func TestAPlaceGoesToANodeWithItsSpeedThoughAnotherHoldsItsLayers(t *testing.T) {
	p := Problem{
		Places: []Place{{0, 0, span(0, 1)}, {0, 1, span(1, 2)}}, NeedSpeed: []float64{1.5, 1},
		Holds: []estimate.Range{span(0, 1), span(1, 2)}, Speed: []float64{1, 2}, LayerBytes: []int64{5, 5},
	}
	if assignment, err := Assign(p); err != nil || !slices.Equal(assignment.NodeOf, []int{1, 0}) {
		t.Fatalf("the first place needs the second node: %+v %v", assignment, err)
	}
	p.NeedSpeed[1] = 1.5
	if _, err := Assign(p); err == nil {
		t.Fatal("a place was filled by a node that is too slow for it")
	}
}

// The twin tries every order of the nodes.
func TestNoOtherOrderFetchesLessAtOnceOrElseAltogether(t *testing.T) {
	for seed := range uint64(300) {
		p := randomProblem(rand.New(rand.NewPCG(seed, 7)))
		p.Dear = nil
		assignment, err := Assign(p)
		best := least(p, func(a Assignment) []float64 {
			return []float64{float64(slices.Max(a.MissingBytes)), total(a.MissingBytes)}
		})
		if (err != nil) != (best == nil) {
			t.Fatalf("seed %d: %+v: %v, but the least is %v", seed, p, err, best)
		}
		if err == nil &&
			(float64(slices.Max(assignment.MissingBytes)) != best[0] || total(assignment.MissingBytes) != best[1]) {
			t.Fatalf("seed %d: %+v: got %v, want %v", seed, p, assignment, best)
		}
	}
}

func total(bytes []int64) (sum float64) {
	for _, value := range bytes {
		sum += float64(value)
	}
	return sum
}

// The twin tries every order of the nodes.
func TestSmallNetworksArePlacedAboutAsWellAsByTryingAllOrders(t *testing.T) {
	worse := 0
	for seed := range uint64(300) {
		p := randomProblem(rand.New(rand.NewPCG(seed, 5)))
		assignment, err := Assign(p)
		if err != nil {
			continue
		}
		best := least(p, func(a Assignment) []float64 { return []float64{a.PairCost} })
		if assignment.PairCost < best[0] {
			t.Fatalf("seed %d: cost %v is below the least possible %v", seed, assignment.PairCost, best)
		}
		if assignment.PairCost > best[0] {
			worse++
		}
	}
	if worse > 30 {
		t.Fatalf("%d of 300 networks are not placed at the least cost", worse)
	}
}

// randomProblem has four or five nodes for four places, and memory for some only.
func randomProblem(random *rand.Rand) Problem {
	p := Problem{LayerBytes: []int64{3, 4, 5, 6}}
	cut := 1 + random.IntN(3)
	p.Places = append(p.Places, Place{0, 0, span(0, 2)}, Place{0, 1, span(2, 4)}, Place{1, 0, span(0, cut)},
		Place{1, 1, span(cut, 4)})
	dear := map[[2]int]bool{}
	for range 4 + random.IntN(2) {
		first := random.IntN(5)
		p.Holds = append(p.Holds, span(first, first+random.IntN(5-first)))
		p.MemoryBytes = append(p.MemoryBytes, int64(4+random.IntN(8)))
	}
	for range 4 {
		p.NeedBytes = append(p.NeedBytes, int64(random.IntN(10)))
	}
	for range random.IntN(4) {
		a, b := random.IntN(len(p.Holds)), random.IntN(len(p.Holds))
		if a != b && !dear[[2]int{min(a, b), max(a, b)}] {
			dear[[2]int{min(a, b), max(a, b)}] = true
			p.Dear = append(p.Dear, Pair{a, b, float64(1 + random.IntN(2))})
		}
	}
	return p
}

// least is the lexicographically least value of any feasible order of the nodes; nil where there is none.
func least(p Problem, value func(Assignment) []float64) (best []float64) {
	nodeOf := make([]int, len(p.Holds))
	for i := range nodeOf {
		nodeOf[i] = i
	}
	permutations(nodeOf, 0, func(nodeOf []int) {
		for seat, node := range nodeOf {
			if !p.fits(node, seat) {
				return
			}
		}
		if v := value(p.result(nodeOf)); best == nil || slices.Compare(v, best) < 0 {
			best = v
		}
	})
	return best
}

// Trading places inside a class never changes the cost of the pairs.
func TestNodesOfOneClassTradePlacesFreely(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 6))
		p := randomProblem(random)
		nodes := len(p.Holds)
		nodeOf := random.Perm(nodes)
		before := p.result(nodeOf).PairCost
		for _, class := range Classes(nodes, p.Dear, nil) {
			seats := map[int]int{}
			for seat, node := range nodeOf {
				seats[node] = seat
			}
			order := random.Perm(len(class))
			for i, node := range class {
				nodeOf[seats[node]] = class[order[i]]
			}
		}
		if after := p.result(nodeOf).PairCost; after != before {
			t.Fatalf("seed %d: cost %v became %v by trades inside classes", seed, before, after)
		}
	}
}

func TestOnlyNodesOfOneKindWithEqualLinksAreOfOneClass(t *testing.T) {
	dear := []Pair{{0, 1, 2}, {0, 2, 2}, {2, 1, 2}, {3, 4, 5}, {4, 5, 5}}
	if got, want := Classes(7, dear, []int{0, 0, 1, 0, 0, 0, 0}),
		[][]int{{0, 1}, {2}, {3, 5}, {4}, {6}}; !slices.EqualFunc(got, want, slices.Equal) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

// usualCluster is so many nodes in pipelines of eight, one of which was lost, each with some dear links to others.
func usualCluster(nodes, dearEach int) Problem {
	p := Problem{LayerBytes: slices.Repeat([]int64{1 << 20}, 32)}
	random := rand.New(rand.NewPCG(1, 8))
	for node := range nodes - 1 {
		p.Holds = append(p.Holds, span(node%8*4, node%8*4+4))
		for range dearEach {
			if other := random.IntN(nodes - 1); other != node {
				p.Dear = append(p.Dear, Pair{node, other, 1})
			}
		}
	}
	for pipeline := range nodes/8 - 1 {
		for stage := range 8 {
			p.Places = append(p.Places, Place{pipeline, stage, span(stage*4, stage*4+4)})
		}
	}
	for stage := range 7 {
		p.Places = append(p.Places,
			Place{nodes/8 - 1, stage,
				span([]int{0, 5, 10, 15, 20, 24, 28, 32}[stage], []int{0, 5, 10, 15, 20, 24, 28, 32}[stage+1])})
	}
	return p
}

func BenchmarkAssign2048(b *testing.B) {
	p := usualCluster(2048, 0)
	for b.Loop() {
		_, _ = Assign(p)
	}
}

func BenchmarkAssign2048WithDearPairs(b *testing.B) {
	p := usualCluster(2048, 8)
	for b.Loop() {
		_, _ = Assign(p)
	}
}

func BenchmarkClasses2048WithDearPairs(b *testing.B) {
	p := usualCluster(2048, 8)
	for b.Loop() {
		Classes(2047, p.Dear, nil)
	}
}
