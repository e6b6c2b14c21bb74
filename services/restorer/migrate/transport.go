package migrate

import (
	"errors"
	"math"
	"slices"
)

// Forbidden is the cost of a pair that must not be used.
const Forbidden = math.MaxInt64

// ErrNoMatching says that every complete matching uses a forbidden pair.
var ErrNoMatching = errors.New("no complete matching avoids the forbidden pairs")

// Transport solves the transportation problem exactly: it returns the flow of least total cost, flow[i][j] units from
// row i to column j, where row i sends supply[i] and column j receives demand[j]. Both have the same sum. It fails with
// ErrNoMatching where every such flow uses a forbidden pair. With supplies and demands of one it is the assignment
// problem.
//
// Costs are of any sign; the largest magnitude times the sum of the supplies must stay below 2^60.
//
// It is the algorithm of Kuhn and Munkres (the Hungarian method), which Chameleon uses for weight migration (section IV-B),
// generalised from the assignment problem: a row stands for all rows that are equal to it, with a supply, and a column with a
// demand, so that a path carries many at a time. It takes successive shortest paths with prices: for a rows and b columns O(a*b) a path,
// and in practice about a+b paths where supplies are large, whatever the amounts are.
func Transport(cost [][]int64, supply, demand []int) (flow [][]int, err error) {
	t := newTransporter(cost, supply, demand)
	return t.flow, t.run()
}

// transportLeastLargest is Transport where the largest cost used is to be least, whatever the sum: the bottleneck
// problem. Row by row it sends along the path whose largest cost is least, and raises the floor only when every other
// way would cross it too, so the floor never passes the answer.
func transportLeastLargest(cost [][]int64, supply, demand []int) (flow [][]int, err error) {
	t := newTransporter(cost, supply, demand)
	t.largest, t.floor = true, slices.Max(t.rowPrice)
	return t.flow, t.run()
}

// transporter is a flow from kinds of rows to kinds of columns. Prices prove it cheapest if the sum of costs counts:
// cost less both prices is never negative, and zero where flow runs. There are no prices if the largest cost counts.
type transporter struct {
	cost                    [][]int64
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

func newTransporter(cost [][]int64, supply, demand []int) *transporter {
	t := &transporter{
		cost: cost, supply: slices.Clone(supply), demand: slices.Clone(demand),
		flow: make([][]int, len(supply)), senders: make([][]int, len(demand)),
		rowPrice: make([]int64, len(supply)), columnPrice: make([]int64, len(demand)),
		rowLabels: make([]waypoint, len(supply)), columnLabels: make([]waypoint, len(demand)),
	}
	for i, row := range cost {
		t.flow[i] = make([]int, len(demand))
		t.rowPrice[i] = slices.Min(row)
	}
	return t
}

func (t *transporter) run() error {
	for i := range t.supply {
		for t.supply[i] > 0 {
			column := t.search(i)
			if column < 0 {
				return ErrNoMatching
			}
			if distance := t.columnLabels[column].distance; t.largest {
				t.floor = distance
			} else {
				t.reprice(distance)
			}
			t.send(column)
		}
	}
	return nil
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
		if c == Forbidden {
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
		if l.settled < t.searches &&
			(l.distance < least || l.distance == least && nearest >= 0 && t.demand[nearest] == 0) {
			nearest, least = j, l.distance
		}
	}
	return nearest
}

// reprice keeps the prices a proof after a search that ended at distance: the path it found becomes free of reduced
// cost.
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
