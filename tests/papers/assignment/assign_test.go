package assignment_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/reknit/reknit/services/restorer/migrate"
	"github.com/reknit/reknit/tests/papers/assignment"
)

// bestPermutations tries every matching: the least total, the least largest, and the least total among those with the
// least largest. All are Forbidden when no matching is allowed.
func bestPermutations(cost [][]int64) (total, largest, totalGivenLargest int64) {
	total, largest, totalGivenLargest = assignment.Forbidden, assignment.Forbidden, assignment.Forbidden
	used := make([]bool, len(cost))
	var try func(row int, sum, most int64)
	try = func(row int, sum, most int64) {
		if row == len(cost) {
			total = min(total, sum)
			if most < largest {
				largest, totalGivenLargest = most, sum
			} else if most == largest {
				totalGivenLargest = min(totalGivenLargest, sum)
			}
			return
		}
		for column, c := range cost[row] {
			if used[column] || c == assignment.Forbidden {
				continue
			}
			used[column] = true
			try(row+1, sum+c, max(most, c))
			used[column] = false
		}
	}
	try(0, 0, math.MinInt64)
	return total, largest, totalGivenLargest
}

// randomCost draws a matrix in which ties, negative costs, forbidden pairs and equal rows all occur.
func randomCost(random *rand.Rand, n int) [][]int64 {
	span := []int64{2, 10, 1 << 40}[random.IntN(3)]
	forbidden := []float64{0, 0.2, 0.5}[random.IntN(3)]
	cost := make([][]int64, n)
	for i := range cost {
		if i > 0 && random.IntN(3) == 0 {
			cost[i] = cost[random.IntN(i)]
			continue
		}
		cost[i] = make([]int64, n)
		for j := range cost[i] {
			cost[i][j] = random.Int64N(span) - span/4
			if random.Float64() < forbidden {
				cost[i][j] = assignment.Forbidden
			}
		}
	}
	return cost
}

func checkPermutation(t *testing.T, cost [][]int64, a assignment.Assignment) {
	t.Helper()
	used := make([]bool, len(cost))
	total, largest := int64(0), int64(math.MinInt64)
	for row, column := range a.ColumnOf {
		if used[column] {
			t.Fatalf("column %d is matched twice in %v", column, a.ColumnOf)
		}
		used[column] = true
		total += cost[row][column]
		largest = max(largest, cost[row][column])
	}
	if len(a.ColumnOf) != len(cost) || total != a.Total || largest != a.Largest {
		t.Fatalf("matching %v costs %d, largest %d; said %d and %d", a.ColumnOf, total, largest, a.Total, a.Largest)
	}
}

func TestAnAssignmentIsAsGoodAsTryingEveryPermutation(t *testing.T) {
	for seed := range uint64(3000) {
		random := rand.New(rand.NewPCG(seed, 2))
		cost := randomCost(random, 1+random.IntN(6))
		total, largest, totalGivenLargest := bestPermutations(cost)
		sum, err := assignment.LeastTotal(cost)
		bottleneck, errBottleneck := assignment.LeastLargest(cost)
		if total == assignment.Forbidden {
			if !errors.Is(err, migrate.ErrNoMatching) || !errors.Is(errBottleneck, migrate.ErrNoMatching) {
				t.Fatalf("seed %d: %v has no matching, got errors %v and %v", seed, cost, err, errBottleneck)
			}
			continue
		}
		if err != nil || errBottleneck != nil {
			t.Fatalf("seed %d: %v: %v, %v", seed, cost, err, errBottleneck)
		}
		checkPermutation(t, cost, sum)
		checkPermutation(t, cost, bottleneck)
		if sum.Total != total {
			t.Fatalf("seed %d: total %d, best is %d in %v", seed, sum.Total, total, cost)
		}
		if bottleneck.Largest != largest || bottleneck.Total != totalGivenLargest {
			t.Fatalf("seed %d: largest %d total %d, best is %d and %d in %v",
				seed, bottleneck.Largest, bottleneck.Total, largest, totalGivenLargest, cost)
		}
	}
}

// hungarian is the plain O(n^3) algorithm, the twin for matrices too large to try everything.
func hungarian(cost [][]int64) int64 {
	n := len(cost)
	u, v := make([]int64, n+1), make([]int64, n+1)
	rowOf, way := make([]int, n+1), make([]int, n+1)
	for i := 1; i <= n; i++ {
		rowOf[0] = i
		slack, used := make([]int64, n+1), make([]bool, n+1)
		for j := range slack {
			slack[j] = math.MaxInt64
		}
		j0 := 0
		for rowOf[j0] != 0 {
			used[j0] = true
			i0, delta, j1 := rowOf[j0], int64(math.MaxInt64), 0
			for j := 1; j <= n; j++ {
				if used[j] {
					continue
				}
				if c := cost[i0-1][j-1] - u[i0] - v[j]; c < slack[j] {
					slack[j], way[j] = c, j0
				}
				if slack[j] < delta {
					delta, j1 = slack[j], j
				}
			}
			for j := 0; j <= n; j++ {
				if used[j] {
					u[rowOf[j]] += delta
					v[j] -= delta
				} else {
					slack[j] -= delta
				}
			}
			j0 = j1
		}
		for j0 != 0 {
			rowOf[j0] = rowOf[way[j0]]
			j0 = way[j0]
		}
	}
	return -v[0]
}

func TestAnAssignmentAgreesWithThePlainHungarianAlgorithm(t *testing.T) {
	for seed := range uint64(120) {
		random := rand.New(rand.NewPCG(seed, 3))
		n := 20 + random.IntN(60)
		kinds := 1 + random.IntN(n)
		if seed%4 == 3 {
			kinds = 1 + random.IntN(n/20) // few enough columns
		}
		span := []int64{2, 50, 1 << 50}[random.IntN(3)]
		distinct := make([][]int64, kinds)
		for i := range distinct {
			distinct[i] = make([]int64, n)
			for j := range distinct[i] {
				distinct[i][j] = random.Int64N(span)
			}
		}
		cost := make([][]int64, n)
		for i := range cost {
			cost[i] = distinct[random.IntN(kinds)]
		}
		ofWhat := "rows"
		if seed%2 == 1 {
			cost, ofWhat = transposed(cost), "columns"
		}
		a, err := assignment.LeastTotal(cost)
		if err != nil {
			t.Fatal(err)
		}
		checkPermutation(t, cost, a)
		if want := hungarian(cost); a.Total != want {
			t.Fatalf("seed %d: n %d, %d kinds of %s: total %d, expected %d", seed, n, kinds, ofWhat, a.Total, want)
		}
	}
}

func transposed(cost [][]int64) [][]int64 {
	result := make([][]int64, len(cost))
	for _, row := range cost {
		for j, c := range row {
			result[j] = append(result[j], c)
		}
	}
	return result
}

func TestAMatrixThatIsNotSquareIsRefused(t *testing.T) {
	if _, err := assignment.LeastTotal([][]int64{{1, 2}, {3}}); err == nil {
		t.Error("accepted a row of one column among two rows")
	}
}

// BenchmarkLeastTotal has the matrices on which scipy's linear_sum_assignment was measured: small integers, wide
// numbers, and the layers missing between old and new stages.
func BenchmarkLeastTotal(b *testing.B) {
	for _, n := range []int{256, 1024, 2048} {
		random := rand.New(rand.NewPCG(uint64(n), 4))
		for _, family := range []struct {
			name string
			cost func(i, j int) int64
		}{
			{"integers", func(int, int) int64 { return random.Int64N(100) }},
			{"wide", func(int, int) int64 { return random.Int64N(1 << 50) }},
			{"stages", func(i, j int) int64 { return stageCost(i%8, 8, j%9, 9, 96) }},
		} {
			cost := make([][]int64, n)
			for i := range cost {
				cost[i] = make([]int64, n)
				for j := range cost[i] {
					cost[i][j] = family.cost(i, j)
				}
			}
			b.Run(fmt.Sprintf("%s/%d", family.name, n), func(b *testing.B) {
				for b.Loop() {
					if _, err := assignment.LeastTotal(cost); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// stageCost counts the layers of stage next of nextStages that stage old of oldStages does not hold.
func stageCost(old, oldStages, next, nextStages, count int) int64 {
	first, end := next*count/nextStages, (next+1)*count/nextStages
	common := min(end, (old+1)*count/oldStages) - max(first, old*count/oldStages)
	return int64(end - first - max(0, common))
}
