package migrate

import (
	"math"
	"slices"
)

// transporter is a flow from kinds of rows to kinds of columns. Where the sum of costs counts, prices prove it cheapest: cost
// less both prices is never negative, and zero where flow runs. Where the largest cost counts, there are none.
type transporter struct {
	cost                    [][]int64
	limit                   int64 // pairs above it do not exist
	largest                 bool  // counts, and not the sum
	floor                   int64 // of the largest cost: no flow gets by with less
	supply, demand          []int // still to be sent and received
	flow                    [][]int
	senders                 [][]int // per column: the rows from which flow runs to it
	rowPrice, columnPrice   []int64
	rowLabels, columnLabels []waypoint // of the search
	searches                int
}

// waypoint is how a kind was reached: from which kind of the other side (-1 at the start) and at what distance.
type waypoint struct {
	from     int
	distance int64
	settled  int // in which search
}

// transport solves the transportation problem exactly: flow[i][j] units from row i to column j at least total cost,
// where row i sends supply[i] and column j receives demand[j], both with the same sum. Pairs that cost more than limit
// are not used; it reports false when there is no such flow.
//
// Successive shortest paths with prices: for a rows and b columns O(a*b) a path, and in practice about a+b paths,
// whatever the amounts are.
func transport(cost [][]int64, supply, demand []int, limit int64) (flow [][]int, ok bool) {
	t := newTransporter(cost, supply, demand, limit)
	return t.flow, t.run()
}

// transportLeastLargest is transport where the largest cost that is used is to be least, whatever the sum: the bottleneck
// problem. Row by row it sends along the path whose largest cost is least, and raises the limit only when every other way
// would cross it too, so the limit never passes the answer.
func transportLeastLargest(cost [][]int64, supply, demand []int) (flow [][]int, limit int64, ok bool) {
	t := newTransporter(cost, supply, demand, Forbidden-1)
	t.largest, t.floor = true, slices.Max(t.rowPrice)
	ok = t.run()
	return t.flow, t.floor, ok
}

func newTransporter(cost [][]int64, supply, demand []int, limit int64) *transporter {
	t := &transporter{
		cost: cost, limit: limit, supply: slices.Clone(supply), demand: slices.Clone(demand),
		flow: make([][]int, len(supply)), senders: make([][]int, len(demand)), rowPrice: make([]int64, len(supply)), columnPrice: make([]int64, len(demand)),
		rowLabels: make([]waypoint, len(supply)), columnLabels: make([]waypoint, len(demand)),
	}
	for i, row := range cost {
		t.flow[i] = make([]int, len(demand))
		t.rowPrice[i] = limit
		for _, c := range row {
			t.rowPrice[i] = min(t.rowPrice[i], c)
		}
	}
	return t
}

func (t *transporter) run() bool {
	for i := range t.supply {
		for t.supply[i] > 0 {
			column := t.search(i)
			if column < 0 {
				return false
			}
			if distance := t.columnLabels[column].distance; t.largest {
				t.floor = distance
			} else {
				t.reprice(distance)
			}
			t.send(column)
		}
	}
	return true
}

// search settles kinds by growing distance from a row until a column that still wants something is nearest.
// It returns that column, or -1.
func (t *transporter) search(row int) int {
	t.searches++
	for j := range t.columnLabels {
		t.columnLabels[j] = waypoint{distance: math.MaxInt64}
	}
	t.settleRow(row, waypoint{from: -1, distance: t.floor})
	for {
		column := t.nearestColumn()
		if column < 0 || t.demand[column] > 0 {
			return column
		}
		label := &t.columnLabels[column]
		label.settled = t.searches
		for _, i := range t.senders[column] {
			if t.rowLabels[i].settled < t.searches {
				t.settleRow(i, waypoint{from: column, distance: label.distance})
			}
		}
	}
}

func (t *transporter) settleRow(row int, label waypoint) {
	label.settled = t.searches
	t.rowLabels[row] = label
	for j, c := range t.cost[row] {
		if c > t.limit {
			continue
		}
		way := label.distance + c - t.rowPrice[row] - t.columnPrice[j]
		if t.largest {
			way = max(label.distance, c)
		}
		if way < t.columnLabels[j].distance {
			t.columnLabels[j] = waypoint{from: row, distance: way}
		}
	}
}

func (t *transporter) nearestColumn() int {
	nearest, least := -1, int64(math.MaxInt64)
	for j, l := range t.columnLabels {
		if l.settled < t.searches && (l.distance < least || l.distance == least && nearest >= 0 && t.demand[nearest] == 0) {
			nearest, least = j, l.distance
		}
	}
	return nearest
}

// reprice keeps the prices a proof after a search that ended at distance: the path it found becomes free of reduced cost.
func (t *transporter) reprice(distance int64) {
	for i, l := range t.rowLabels {
		if l.settled == t.searches {
			t.rowPrice[i] += distance - l.distance
		}
	}
	for j, l := range t.columnLabels {
		if l.settled == t.searches {
			t.columnPrice[j] -= distance - l.distance
		}
	}
}

// send moves as much as fits along the path that ends in column.
func (t *transporter) send(column int) {
	amount := t.demand[column]
	row := t.columnLabels[column].from
	for at := t.rowLabels[row].from; at >= 0; at = t.rowLabels[row].from {
		amount = min(amount, t.flow[row][at])
		row = t.columnLabels[at].from
	}
	amount = min(amount, t.supply[row])
	t.supply[row] -= amount
	t.demand[column] -= amount
	for at := column; at >= 0; {
		row = t.columnLabels[at].from
		if t.flow[row][at] == 0 {
			t.senders[at] = append(t.senders[at], row)
		}
		t.flow[row][at] += amount
		if at = t.rowLabels[row].from; at < 0 {
			continue
		}
		if t.flow[row][at] -= amount; t.flow[row][at] == 0 {
			t.senders[at] = slices.DeleteFunc(t.senders[at], func(sender int) bool { return sender == row })
		}
	}
}
