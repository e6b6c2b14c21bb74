package takeover

// step is a piece that goes from one worker to the next.
type step struct {
	from, to place
	before   int // the step by which from's worker gets a piece; -1: it is one of the last to be done
}

// relieve moves one piece from a worker that is done last to another, who may give one on, and so on, so that nobody of
// them is done as late. It reports whether there was such a chain. Breadth first, each worker once: where all pieces take
// as long this is an augmenting path, and none left means that no division ends before.
func (d *division) relieve(end float64) bool {
	var steps []step
	isReached := make([]bool, len(d.workers))
	expand := func(worker, by int) bool {
		for _, from := range d.of[worker] {
			if d.shares[from.work][from.at] == 0 {
				continue
			}
			for at, to := range d.works[from.work].Workers {
				if isReached[to] {
					continue
				}
				isReached[to] = true
				steps = append(steps, step{from, place{from.work, at}, by})
				if d.try(steps, len(steps)-1, end) {
					return true
				}
			}
		}
		return false
	}
	var last []int
	for worker := range d.workers {
		if d.takes(worker) && d.done(worker, 0) >= before(end) {
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

// try moves the pieces of a chain that ends with a step, and takes them back if somebody is done too late then, or has no room.
func (d *division) try(steps []step, last int, end float64) bool {
	good := true
	for at := last; at >= 0; at = steps[at].before {
		d.add(steps[at].from, -1)
		d.add(steps[at].to, 1)
	}
	for at := last; at >= 0; at = steps[at].before {
		worker := d.works[steps[at].to.work].Workers[steps[at].to.at]
		good = good && d.done(worker, 0) < before(end) && d.filled[worker] <= d.workers[worker].RoomBytes
	}
	for at := last; at >= 0 && !good; at = steps[at].before {
		d.add(steps[at].from, 1)
		d.add(steps[at].to, -1)
	}
	return good
}
