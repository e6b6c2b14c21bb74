package main

import "math"

// munkres assigns every row a column at the least total cost (Kuhn and Munkres), in O(n^3). It returns the row of each
// column.
func munkres(cost [][]int) []int {
	n := len(cost)
	u, v, rowOf, way := make([]int, n+1), make([]int, n+1), make([]int, n+1), make([]int, n+1)
	for row := 1; row <= n; row++ {
		rowOf[0] = row
		column := 0
		least, used := make([]int, n+1), make([]bool, n+1)
		for j := range least {
			least[j] = math.MaxInt
		}
		for rowOf[column] != 0 {
			used[column] = true
			delta, next := math.MaxInt, 0
			for j := 1; j <= n; j++ {
				if used[j] {
					continue
				}
				if reduced := cost[rowOf[column]-1][j-1] - u[rowOf[column]] - v[j]; reduced < least[j] {
					least[j], way[j] = reduced, column
				}
				if least[j] < delta {
					delta, next = least[j], j
				}
			}
			for j := range least {
				if used[j] {
					u[rowOf[j]] += delta
					v[j] -= delta
				} else {
					least[j] -= delta
				}
			}
			column = next
		}
		for ; column != 0; column = way[column] {
			rowOf[column] = rowOf[way[column]]
		}
	}
	rows := make([]int, n)
	for j := range rows {
		rows[j] = rowOf[j+1] - 1
	}
	return rows
}
