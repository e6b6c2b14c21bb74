package assignment

import "math"

// leastLargest returns the least limit at which a complete matching exists: the bottleneck assignment problem. Row by
// row it matches along the path whose largest cost is least, and raises the limit only when every other way would cross
// it too, so the limit never passes the answer. It reports false when every matching uses a forbidden pair. O(n^3).
func leastLargest(cost [][]int64) (limit int64, ok bool) {
	limit = math.MinInt64
	n := len(cost)
	columnOf, rowOf := make([]int, n), make([]int, n)
	for j := range n {
		columnOf[j], rowOf[j] = -1, -1
	}
	for row := range cost {
		column, from, height := lowestWay(cost, rowOf, row, limit)
		if column < 0 {
			return 0, false
		}
		limit = max(limit, height)
		for done := false; !done; {
			i := from[column]
			rowOf[column] = i
			column, columnOf[i] = columnOf[i], column
			done = i == row
		}
	}
	return limit, true
}

// lowestWay finds the free column that row reaches by an alternating path with the least largest cost, where all costs
// up to limit are as good. from is the row before each column on the paths. The column is -1 when none is reached.
func lowestWay(cost [][]int64, rowOf []int, row int, limit int64) (column int, from []int, height int64) {
	heights := make([]int64, len(cost)) // largest cost on the lowest known way to the column
	from = make([]int, len(cost))
	settled := make([]bool, len(cost))
	for j := range heights {
		heights[j] = math.MaxInt64
	}
	height = limit
	for i := row; ; {
		column = -1
		for j, c := range cost[i] {
			if settled[j] {
				continue
			}
			if way := max(c, height); way < heights[j] {
				heights[j], from[j] = way, i
			}
			if heights[j] == Forbidden {
				continue
			}
			if column < 0 || heights[j] < heights[column] || heights[j] == heights[column] && rowOf[j] < 0 {
				column = j
			}
		}
		if column < 0 {
			return -1, nil, 0
		}
		height, settled[column] = heights[column], true
		if i = rowOf[column]; i < 0 {
			return column, from, height
		}
	}
}
