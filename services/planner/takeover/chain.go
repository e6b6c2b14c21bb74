package takeover

// step is a piece that goes from one worker to the next.
type step struct {
	from, to place
	before   int // the step by which from's worker gets a piece; -1: it is one of the last to be done
}

// even moves pieces until no chain makes the end earlier, or the end is no later than a floor.
func (d *division) even(floor float64) {
	for most := d.looked + mostLooks; d.looked < most; {
		if end := d.end(); end <= floor || !d.relieve(end) {
			return
		}
	}
}

// relieve moves one piece from a worker that is done last to another, who may give one on, and so on, so that nobody of
// them is done as late. It reports whether there was such a chain. Breadth first, each worker once: where all pieces take
// as long this is an augmenting path, and none left means that no division ends before.
func (d *division) relieve(end float64) bool {
	var steps []step
	isReached := make([]bool, len(d.workers))
	expand := func(worker, by int) bool {
		for _, from := range d.of[worker] {
			if d.looked++; d.shares[from.work][from.at] == 0 {
				continue
			}
			d.looked += len(d.works[from.work].Workers)
			for at, to := range d.works[from.work].Workers {
				if isReached[to] {
					continue
				}
				isReached[to] = true
				steps = append(steps, step{from, place{from.work, at}, by})
				if d.move(steps, len(steps)-1, end) {
					return true
				}
			}
		}
		return false
	}
	var last []int
	for worker := range d.workers {
		if d.taken[worker] > 0 && d.done(worker, 0) >= before(end) {
			isReached[worker] = true
			last = append(last, worker)
		}
	}
	for _, worker := range last {
		if expand(worker, -1) {
			return true
		}
	}
	for at := 0; at < len(steps); at++ {
		if expand(d.works[steps[at].to.work].Workers[steps[at].to.at], at) {
			return true
		}
	}
	return false
}

// move moves the pieces of a chain that ends with a step, unless somebody is done too late then, or has no room.
func (d *division) move(steps []step, last int, end float64) bool {
	var next *step // by which the one who gets a piece gives one on
	for at := last; at >= 0; at = steps[at].before {
		if d.looked++; !d.mayGet(steps[at].to, next, end) {
			return false
		}
		next = &steps[at]
	}
	for at := last; at >= 0; at = steps[at].before {
		from, to := steps[at].from, steps[at].to
		d.set(from, d.shares[from.work][from.at]-1, d.others(from))
		d.set(to, d.shares[to.work][to.at]+1, d.others(to))
	}
	return true
}

// mayGet reports whether a worker that gets a piece, and gives another on where there is a next step, is done before some end and has
// room.
func (d *division) mayGet(p place, next *step, end float64) bool {
	work, share := d.works[p.work], d.shares[p.work][p.at]
	worker := work.Workers[p.at]
	seconds, bytes := work.Seconds, work.FilledBytes(share+1)-work.FilledBytes(share)
	switch {
	case next == nil:
	case next.from == p:
		seconds, bytes = 0, 0
	default:
		gives, has := d.works[next.from.work], d.shares[next.from.work][next.from.at]
		seconds, bytes = seconds-gives.Seconds, bytes+gives.FilledBytes(has-1)-gives.FilledBytes(has)
	}
	return d.done(worker, seconds) < before(end) && d.filled[worker]+bytes <= d.workers[worker].RoomBytes
}
