package assignment

import "math"

// dense is a partial matching together with column prices that prove it cheapest: a row pays the cost less the price of
// its column, and no other column would cost it less.
type dense struct {
	cost     [][]int64
	limit    int64 // pairs above it do not exist
	price    []int64
	columnOf []int // per row, -1 while free
	rowOf    []int // per column, -1 while free
	freeRows []int

	// State of the search in augment.
	labels []label // settled columns, then those at the least open distance, then the rest
	from   []int   // per column: the row from which it was reached
}

// label is how far a column is from the row that searches. Labels are moved about as a whole, because reading them
// in sequence is faster than reading them through an index (by 15% at n = 4096).
type label struct {
	column          int
	price, distance int64
}

// assignDense reports false when no complete matching stays within limit.
func assignDense(cost [][]int64, limit int64) (columnOf []int, ok bool) {
	n := len(cost)
	d := &dense{
		cost: cost, limit: limit, price: make([]int64, n), columnOf: make([]int, n), rowOf: make([]int, n),
		freeRows: make([]int, n), labels: make([]label, n), from: make([]int, n),
	}
	for i := range n {
		d.columnOf[i], d.rowOf[i], d.freeRows[i] = -1, -1, i
	}
	d.priceColumns()
	d.bidTwice()
	for _, row := range d.freeRows {
		if !d.augment(row) {
			return nil, false
		}
	}
	return d.columnOf, true
}

// priceColumns prices every column at its least cost.
func (d *dense) priceColumns() {
	for j := range d.price {
		d.price[j] = d.limit
	}
	for _, row := range d.cost {
		for j, c := range row {
			d.price[j] = min(d.price[j], c)
		}
	}
}

// bidTwice lets every free row bid for its cheapest column, twice; the row that loses the column to a better offer bids
// next. Bidding can creep in tiny steps, so it stops after four bids a row on average and leaves the rest to augment.
func (d *dense) bidTwice() {
	for range 2 {
		bidders := d.freeRows
		d.freeRows = nil
		for bids := 0; len(bidders) > 0; bids++ {
			loser, outbid := d.bid(bidders[0])
			if outbid && loser >= 0 && bids < 4*len(d.cost) {
				bidders[0] = loser
				continue
			}
			bidders = bidders[1:]
			if loser >= 0 {
				d.freeRows = append(d.freeRows, loser)
			}
		}
	}
}

// bid gives row the column it likes best, at a price that makes its second choice as good. It returns the row left
// without a column, or -1, and whether that row lost its column to a strictly better offer.
func (d *dense) bid(row int) (loser int, outbid bool) {
	column, second, pay, nextPay := d.twoCheapest(row)
	switch {
	case column < 0:
		return row, false
	case pay < nextPay:
		d.price[column] -= nextPay - pay
	case d.rowOf[column] >= 0 && second < 0:
		return row, false
	case d.rowOf[column] >= 0:
		column = second
	}
	loser = d.rowOf[column]
	if loser >= 0 {
		d.columnOf[loser] = -1
	}
	d.columnOf[row], d.rowOf[column] = column, row
	return loser, pay < nextPay
}

// twoCheapest returns the columns that row would pay least and second least for, and what it would pay. It prefers a
// free one of equal columns. The second is -1 if there is no second column, and its pay is that of the first.
func (d *dense) twoCheapest(row int) (first, second int, pay, nextPay int64) {
	first, second, pay, nextPay = -1, -1, math.MaxInt64, math.MaxInt64
	for j, c := range d.cost[row] {
		if c > d.limit {
			continue
		}
		reduced := c - d.price[j]
		switch {
		case reduced > nextPay:
		case reduced < pay, reduced == pay && d.rowOf[first] >= 0 && d.rowOf[j] < 0:
			second, nextPay = first, pay
			first, pay = j, reduced
		case reduced < nextPay:
			second, nextPay = j, reduced
		}
	}
	if second < 0 {
		nextPay = pay
	}
	return first, second, pay, nextPay
}

// augment matches one more row along the cheapest alternating path that starts there, and updates the prices so that
// they still prove the matching. It reports false when no path reaches a free column.
func (d *dense) augment(row int) bool {
	for j, c := range d.cost[row] {
		d.labels[j] = label{j, d.price[j], math.MaxInt64}
		if c <= d.limit {
			d.labels[j].distance = c - d.price[j]
		}
		d.from[j] = row
	}
	free, settled, least := d.search()
	if free < 0 {
		return false
	}
	for _, l := range d.labels[:settled] {
		d.price[l.column] += l.distance - least
	}
	for column := free; ; {
		i := d.from[column]
		d.rowOf[column] = i
		column, d.columnOf[i] = d.columnOf[i], column
		if i == row {
			return true
		}
	}
}

// search settles columns by growing distance until a free one is at the least distance. It returns that column, how
// many labels are settled, and the distance; the column is -1 when none can be reached.
func (d *dense) search() (free, settled int, least int64) {
	edge := 0 // labels[settled:edge] are at the least distance
	for {
		if settled == edge {
			if least, edge = d.nearest(settled); least == math.MaxInt64 {
				return -1, settled, least
			}
			for _, l := range d.labels[settled:edge] {
				if d.rowOf[l.column] < 0 {
					return l.column, settled, least
				}
			}
		}
		settled++
		if free, edge = d.relax(d.labels[settled-1].column, edge, least); free >= 0 {
			return free, settled, least
		}
	}
}

// nearest moves the open labels of least distance to the front of labels[settled:] and returns that distance and where
// they end.
func (d *dense) nearest(settled int) (least int64, edge int) {
	least, edge = math.MaxInt64, settled
	for k := settled; k < len(d.labels); k++ {
		distance := d.labels[k].distance
		if distance > least {
			continue
		}
		if distance < least {
			least, edge = distance, settled
		}
		d.labels[k], d.labels[edge] = d.labels[edge], d.labels[k]
		edge++
	}
	return least, edge
}

// relax looks for shorter ways through the row that holds column, which is at the least distance, to the columns of
// labels[edge:]. Those now at the least distance join the front; a free one among them ends the search.
func (d *dense) relax(column, edge int, least int64) (free, newEdge int) {
	i := d.rowOf[column]
	row := d.cost[i]
	offset := least - (row[column] - d.price[column])
	for k := edge; k < len(d.labels); k++ {
		l := &d.labels[k]
		c := row[l.column]
		through := c - l.price + offset
		if through >= l.distance || c > d.limit {
			continue
		}
		l.distance, d.from[l.column] = through, i
		if through > least {
			continue
		}
		if d.rowOf[l.column] < 0 {
			return l.column, edge
		}
		d.labels[k], d.labels[edge] = d.labels[edge], d.labels[k]
		edge++
	}
	return -1, edge
}
