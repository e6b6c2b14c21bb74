// Package assignment solves the assignment problem as Kuhn and Munkres posed it, a cost for every pair: Chameleon's
// restorer (section IV) matches nodes with places by it. The restorer itself solves the transportation problem between
// kinds of nodes and kinds of places; this is what it is measured against.
package assignment

import (
	"fmt"

	"github.com/reknit/reknit/services/restorer/migrate"
)

// Forbidden is the cost of a pair that must not be matched.
const Forbidden = migrate.Forbidden

// Assignment matches every row of a square cost matrix with one column.
type Assignment struct {
	ColumnOf []int // per row
	Total    int64 // sum of the matched costs
	Largest  int64 // largest matched cost
}

// LeastTotal returns a matching of least total cost. Costs are integers of any sign, or Forbidden; the largest
// magnitude times the number of rows must stay below 2^60. It fails when the matrix is not square, and with
// migrate.ErrNoMatching.
//
// It solves the assignment problem of Kuhn and Munkres by shortest augmenting paths, after the start of Jonker and
// Volgenant ("A shortest augmenting path algorithm for dense and sparse linear assignment problems", 1987): cheap steps
// settle most rows, a Dijkstra search each of the others. O(n^3). A matrix whose rows or columns come in few kinds, as
// in a cluster where nodes hold or need equal stages, is solved kind by kind: O(n^2) to find the kinds.
func LeastTotal(cost [][]int64) (Assignment, error) {
	if err := checkSquare(cost); err != nil {
		return Assignment{}, err
	}
	return assignUpTo(cost, Forbidden-1)
}

// LeastLargest returns, of the matchings whose largest cost is least, one of least total cost. O(n^3).
// Input and errors are those of LeastTotal.
func LeastLargest(cost [][]int64) (Assignment, error) {
	if err := checkSquare(cost); err != nil {
		return Assignment{}, err
	}
	limit, ok := leastLargest(cost)
	if !ok {
		return Assignment{}, migrate.ErrNoMatching
	}
	return assignUpTo(cost, limit)
}

func checkSquare(cost [][]int64) error {
	for i, row := range cost {
		if len(row) != len(cost) {
			return fmt.Errorf("cost[%d] has %d columns, expected %d, one per row", i, len(row), len(cost))
		}
	}
	return nil
}

// assignUpTo is LeastTotal without the pairs that cost more than limit.
func assignUpTo(cost [][]int64, limit int64) (Assignment, error) {
	columnOf, ok := assignKinds(cost, limit)
	if columnOf == nil {
		columnOf, ok = assignDense(cost, limit)
	}
	if !ok {
		return Assignment{}, migrate.ErrNoMatching
	}
	result := Assignment{ColumnOf: columnOf}
	for row, column := range columnOf {
		c := cost[row][column]
		result.Total += c
		if row == 0 || c > result.Largest {
			result.Largest = c
		}
	}
	return result, nil
}
