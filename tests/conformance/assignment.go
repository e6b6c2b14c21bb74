package main

import (
	"errors"
	"fmt"

	"github.com/reknit/reknit/services/restorer/migrate"
	"github.com/reknit/reknit/tests/papers/assignment"
)

type assignmentInput struct{ Cost [][]int64 }

func solveAssignment(in assignmentInput) (answer, error) {
	total, totalErr := assignment.LeastTotal(in.Cost)
	largest, largestErr := assignment.LeastLargest(in.Cost)
	if err := errors.Join(totalErr, largestErr); err != nil {
		return nil, err
	}
	var sum, most int64
	if err := once(total.ColumnOf, len(in.Cost)); err != nil {
		return nil, fmt.Errorf("permutation: %w", err)
	}
	if err := once(largest.ColumnOf, len(in.Cost)); err != nil {
		return nil, fmt.Errorf("bottleneck_permutation: %w", err)
	}
	for i, row := range in.Cost {
		sum += row[total.ColumnOf[i]]
		if cost := row[largest.ColumnOf[i]]; i == 0 || cost > most {
			most = cost
		}
	}
	return answer{
		"min_total": sum, "permutation": total.ColumnOf, "min_max_edge": most,
		"bottleneck_permutation": largest.ColumnOf,
	}, nil
}

// once checks that no one takes a place twice and that every place is taken.
func once(placeOf []int, places int) error {
	taken := make([]bool, places)
	left := places
	for i, place := range placeOf {
		if place == migrate.Idle {
			continue
		}
		if place < 0 || place >= places || taken[place] {
			return fmt.Errorf("%d takes %d, which is no place or taken", i, place)
		}
		taken[place] = true
		left--
	}
	if left > 0 {
		return fmt.Errorf("%d places are left empty", left)
	}
	return nil
}
