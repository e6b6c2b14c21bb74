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
	if err != nil || !slices.Equal(assignment.NodeOf, []int{2, 0}) || !slices.Equal(assignment.MissingBytes, []int64{1, 0, 1}) {
		t.Fatalf("%+v %v", assignment, err)
	}
}

func TestAPairWithoutALinkIsKeptApart(t *testing.T) {
	cut := func(a, b int) float64 {
		if min(a, b) == 0 && max(a, b) == 1 {
			return 100
		}
		return 1
	}
	assignment, err := Assign(Problem{
		Places: []Place{{0, 0, span(0, 1)}, {0, 1, span(1, 2)}, {1, 0, span(0, 1)}, {1, 1, span(1, 2)}},
		Holds:  []estimate.Range{span(0, 1), span(1, 2), span(0, 1), span(1, 2)}, LayerBytes: []int64{5, 5}, Pair: cut,
	})
	if err != nil || assignment.PairCost != 4 {
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

// The twin tries every order of the nodes.
func TestSmallNetworksArePlacedAboutAsWellAsByTryingAllOrders(t *testing.T) {
	worse := 0
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 5))
		p := randomProblem(random)
		assignment, err := Assign(p)
		if err != nil {
			t.Fatal(err)
		}
		best := bruteForce(p)
		if assignment.PairCost < best {
			t.Fatalf("seed %d: cost %v is below the least possible %v", seed, assignment.PairCost, best)
		}
		if assignment.PairCost > best {
			worse++
		}
	}
	if worse > 30 {
		t.Fatalf("%d of 200 networks are not placed at the least cost", worse)
	}
}

func randomProblem(random *rand.Rand) Problem {
	p := Problem{LayerBytes: []int64{3, 4, 5, 6}}
	for pipeline := range 2 {
		p.Places = append(p.Places, Place{pipeline, 0, span(0, 2)}, Place{pipeline, 1, span(2, 4)})
	}
	dear := map[[2]int]bool{}
	for range 5 {
		p.Holds = append(p.Holds, span(0, random.IntN(5)))
	}
	for range random.IntN(4) {
		a, b := random.IntN(5), random.IntN(5)
		dear[[2]int{min(a, b), max(a, b)}] = true
	}
	p.Pair = func(a, b int) float64 {
		if dear[[2]int{min(a, b), max(a, b)}] {
			return 10
		}
		return 0
	}
	return p
}

func bruteForce(p Problem) float64 {
	least := 1e9
	a := newArrangement(p)
	var permute func(seat int)
	permute = func(seat int) {
		if seat == len(a.nodeOf) {
			least = min(least, a.result().PairCost)
			return
		}
		for i := seat; i < len(a.nodeOf); i++ {
			a.nodeOf[seat], a.nodeOf[i] = a.nodeOf[i], a.nodeOf[seat]
			permute(seat + 1)
			a.nodeOf[seat], a.nodeOf[i] = a.nodeOf[i], a.nodeOf[seat]
		}
	}
	for i := range a.nodeOf {
		a.nodeOf[i] = i
	}
	permute(0)
	return least
}

// Trading places inside a class never changes the cost of the pairs.
func TestNodesOfOneClassTradePlacesFreely(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 6))
		p := randomProblem(random)
		a := newArrangement(p)
		copy(a.nodeOf, random.Perm(5))
		before := a.result().PairCost
		for _, class := range Classes(5, p.Pair) {
			seats := map[int]int{}
			for seat, node := range a.nodeOf {
				seats[node] = seat
			}
			order := random.Perm(len(class))
			for i, node := range class {
				a.nodeOf[seats[node]] = class[order[i]]
			}
		}
		if after := a.result().PairCost; after != before {
			t.Fatalf("seed %d: cost %v became %v by trades inside classes", seed, before, after)
		}
	}
}
