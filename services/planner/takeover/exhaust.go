package takeover

// exhaustion tries every division, as long as it may.
type exhaustion struct {
	division
	floor float64
	best  [][]int
	end   float64 // of the best that is known
	known bool    // there is one
	left  int     // steps
}

// exhaust returns a division that ends before one that is known, or nil where there is none or the steps run out.
func exhaust(works []Work, workers []Worker, floor, end float64, known bool) ([][]int, float64) {
	e := exhaustion{division: *newDivision(works, workers), floor: floor, end: end, known: known, left: mostSteps}
	if e.promises(0) {
		e.share(0, 0, works[0].Pieces)
	}
	return e.best, e.end
}

// share tries how many of the pieces left a worker of a work takes, and goes on with the next.
func (e *exhaustion) share(work, at, pieces int) {
	w := e.works[work]
	if at == len(w.Workers) {
		switch {
		case pieces > 0:
		case work+1 == len(e.works):
			e.keep()
		case e.promises(work + 1):
			e.share(work+1, 0, e.works[work+1].Pieces)
		}
		return
	}
	least := 0
	if at == len(w.Workers)-1 {
		least = pieces
	}
	place, worker := place{work, at}, w.Workers[at]
	others := e.spent[worker]
	for share := least; share <= pieces && e.left > 0 && !(e.known && e.end <= e.floor); share++ {
		e.left--
		e.set(place, share, others)
		fits := e.filled[worker] <= e.workers[worker].RoomBytes
		if share > 0 && (e.known && e.done(worker, 0) >= before(e.end) || !fits) {
			break // and so with more
		}
		e.share(work, at+1, pieces-share)
	}
	e.set(place, 0, others)
}

// keep keeps a division that is complete.
func (e *exhaustion) keep() {
	e.best, e.end, e.known = nil, e.division.end(), true
	for _, shares := range e.shares {
		e.best = append(e.best, append([]int(nil), shares...))
	}
}

// promises reports whether each work from one on, by itself, may be done before the best that is known ends.
func (e *exhaustion) promises(from int) bool {
	if !e.known {
		return true
	}
	for _, work := range e.works[from:] {
		free := 0.0
		for _, worker := range work.Workers {
			free += max(0, e.end-e.done(worker, 0)) * e.workers[worker].Speed
		}
		if float64(work.Pieces)*work.Seconds > free*(1+1e-12) {
			return false
		}
	}
	return true
}
