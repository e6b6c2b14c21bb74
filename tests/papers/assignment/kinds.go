package assignment

import (
	"slices"

	"github.com/reknit/reknit/services/restorer/migrate"
)

// Sorting the columns into kinds pays for rows of many kinds if there are at most mostColumnKinds of them, and
// columnsPerKind columns to each. With the layers that 4,096 nodes with links of their own lack for 16 kinds of places,
// it takes 0.3 CPU s instead of 2.1; with random costs of 16 to 64 kinds it is up to 1.6 times slower or 2.7 times
// faster than the plain problem.
const (
	mostColumnKinds = 64
	columnsPerKind  = 32
)

// assignKinds solves a matrix with many equal rows, or columns, as a transportation problem between kinds of rows and
// kinds of columns. It returns nil where that would not pay: when the rows are of more than a quarter as many kinds,
// and the columns are of many, too.
func assignKinds(cost [][]int64, limit int64) (columnOf []int, ok bool) {
	n := len(cost)
	rows, few := equalRows(cost, n/4)
	most := n
	if !few {
		most = min(n/columnsPerKind, mostColumnKinds)
		if !fewColumns(cost, most) {
			return nil, false
		}
		rows = make([][]int, n)
		for i := range rows {
			rows[i] = []int{i}
		}
	}
	transposed := make([][]int64, n)
	for j := range transposed {
		transposed[j] = make([]int64, len(rows))
		for k, members := range rows {
			transposed[j][k] = cost[members[0]][j]
		}
	}
	columns, few := equalRows(transposed, most)
	if !few {
		return nil, false
	}
	kindCost := make([][]int64, len(rows))
	for k := range rows {
		kindCost[k] = make([]int64, len(columns))
		for l, members := range columns {
			if kindCost[k][l] = transposed[members[0]][k]; kindCost[k][l] > limit {
				kindCost[k][l] = Forbidden
			}
		}
	}
	columnOf = make([]int, n)
	flow, err := migrate.Transport(kindCost, sizes(rows), sizes(columns))
	if err == nil {
		pairUp(flow, rows, columns, columnOf)
	}
	return columnOf, err == nil
}

// fewColumns looks at the first rows only, so that a matrix where it is not so costs next to nothing.
func fewColumns(cost [][]int64, most int) bool {
	const looked = 8
	tops := make([][]int64, len(cost))
	for j := range tops {
		for _, row := range cost[:min(looked, len(cost))] {
			tops[j] = append(tops[j], row[j])
		}
	}
	_, few := equalRows(tops, most)
	return few
}

// equalRows groups the indices of equal rows, kinds in order of first appearance. It gives up and reports false as soon
// as there are more than most kinds.
func equalRows(rows [][]int64, most int) (kinds [][]int, few bool) {
	kindOf := make(map[uint64]int)
	for i, row := range rows {
		hash := uint64(14695981039346656037)
		for _, c := range row {
			hash = (hash ^ uint64(c)) * 1099511628211
			hash ^= hash >> 29
		}
		// Rows of equal hash that differ become kinds of their own: more work, same answer.
		if kind, known := kindOf[hash]; known && slices.Equal(rows[kinds[kind][0]], row) {
			kinds[kind] = append(kinds[kind], i)
			continue
		}
		kindOf[hash] = len(kinds)
		if kinds = append(kinds, []int{i}); len(kinds) > most {
			return nil, false
		}
	}
	return kinds, true
}

func sizes(kinds [][]int) []int {
	counts := make([]int, len(kinds))
	for k, members := range kinds {
		counts[k] = len(members)
	}
	return counts
}

// pairUp hands the columns of each kind to the rows of each kind, lowest index first, as flow says.
func pairUp(flow [][]int, rows, columns [][]int, columnOf []int) {
	next := make([]int, len(columns))
	for k, members := range rows {
		row := 0
		for l, amount := range flow[k] {
			for range amount {
				columnOf[members[row]] = columns[l][next[l]]
				row++
				next[l]++
			}
		}
	}
}
