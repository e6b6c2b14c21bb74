package migrate

import (
	"encoding/binary"
	"slices"
)

// row is survivors of one kind that take equally long to fetch what they lack for a place of any kind.
type row struct {
	kind    int
	members []int
	times   []int64 // nanoseconds per kind of place, or Forbidden
}

const mostNanoseconds = 1 << 62 // a century, and below Forbidden

// split sorts the survivors of each kind by how long they take for the places that kinds may take.
func (m *matcher) split(may func(survivors, places int) bool) []row {
	var rows []row
	for i, survivors := range m.survivors {
		times := slices.Repeat([]int64{Forbidden}, len(m.places))
		seconds := make([]func(int) float64, len(m.places)) // nil where all take as long
		alike := true
		for j := range times {
			if !may(i, j) {
				continue
			}
			times[j] = m.cost[i][j]
			if m.problem.Seconds == nil {
				continue
			}
			if missing := m.missing(i, j); len(missing) > 0 {
				seconds[j], alike = m.problem.Seconds(missing), false
			}
		}
		if alike {
			rows = append(rows, row{i, survivors.members, times})
			continue
		}
		rows = append(rows, apart(i, survivors.members, times, seconds)...)
	}
	return rows
}

// apart makes a row of the survivors of a kind for each of the times that they take, in order of first appearance.
func apart(kind int, survivors []int, times []int64, seconds []func(int) float64) []row {
	var rows []row
	index := make(map[string]int)
	var key []byte
	for _, survivor := range survivors {
		key = key[:0]
		for j, of := range seconds {
			if of != nil {
				times[j] = int64(min(1e9*of(survivor), mostNanoseconds))
				key = binary.LittleEndian.AppendUint64(key, uint64(times[j]))
			}
		}
		r, known := index[string(key)]
		if !known {
			r = len(rows)
			index[string(key)] = r
			rows = append(rows, row{kind: kind, times: slices.Clone(times)})
		}
		rows[r].members = append(rows[r].members, survivor)
	}
	return rows
}

func timesOf(rows []row) [][]int64 {
	times := make([][]int64, len(rows))
	for r, row := range rows {
		times[r] = row.times
	}
	return times
}

func supplyOf(rows []row) []int {
	supply := make([]int, len(rows))
	for r, row := range rows {
		supply[r] = len(row.members)
	}
	return supply
}
