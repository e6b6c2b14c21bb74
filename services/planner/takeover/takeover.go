// Package takeover divides the work of lost nodes among nodes that hold the same layers, so that the last one is done as
// early as possible.
//
// It generalises Chameleon's rerouting (IV-A, IV-C): there the pipelines are equal, the survivors of a stage take even
// shares, and the stage with the largest share sets the step. Here each layer has survivors of its own, which may be
// busy for different times and differ in speed. This is scheduling of unrelated pieces on uniform machines with
// restrictions (Graham's list scheduling, then augmenting paths), NP-hard where pieces differ.
package takeover

import (
	"cmp"
	"fmt"
	"slices"
)

// Work is equal pieces, each of which any one of some workers may do.
type Work struct {
	Pieces   int
	Seconds  float64 // that a piece takes at speed 1
	Workers  []int   // who may do it
	InFlight int     // pieces of it whose activations are kept at a time, all workers together
	Bytes    int64   // that a piece in flight keeps
}

// Worker does pieces beside what it does anyway.
type Worker struct {
	BusySeconds float64 // with what it does anyway
	Speed       float64
	RoomBytes   int64
}

// Unfit tells for which work no worker has room.
type Unfit struct{ Work int }

func (u Unfit) Error() string {
	return fmt.Sprintf("work %d: no worker has room for all of it", u.Work)
}

// mostSteps bounds the search for an exact answer, and mostLooks how many workers and works are looked at to move pieces before that.
// The pieces of 2,048 layers took 2.2 million looks where layers take drawn times. Moves go on for longer than is worth it where layers take
// equally long.
const mostSteps, mostLooks = 50_000, 8_000_000

// Divide returns how many pieces of each work each of its workers takes, and when the last of them is done. Nothing is
// gained by an end before the floor.
//
// The end is the least possible where all pieces take as long and memory does not bind, and where few shares are
// possible. Beyond, it is what one piece moved along any chain of workers cannot shorten, or better, unless the looks run out. Pieces
// are dealt in O(pieces * workers of a work). A chain is found in O(works * workers of a work), and a step of the search for an exact
// answer takes as long at most.
func Divide(works []Work, workers []Worker, floor float64) (shares [][]int, end float64, err error) {
	d := newDivision(works, workers)
	dealt := d.deal()
	if dealt == nil {
		d.even(floor)
		shares, end = d.shares, d.end()
		if end <= floor || d.alike() {
			return shares, max(end, floor), nil
		}
	}
	if better, sooner := exhaust(works, workers, floor, end, dealt == nil); better != nil {
		return better, max(sooner, floor), nil
	}
	return shares, max(end, floor), dealt
}

// division is shares, and what they cost.
type division struct {
	works   []Work
	workers []Worker
	shares  [][]int
	of      [][]place // by worker: its works
	taken   []int     // by worker: pieces
	spent   []float64 // by worker: seconds at speed 1
	filled  []int64   // by worker: bytes
	crowded bool      // some worker had no room
	looked  int       // at workers and works
}

// place is a work, and which of its workers.
type place struct{ work, at int }

func newDivision(works []Work, workers []Worker) *division {
	d := &division{
		works: works, workers: workers, shares: make([][]int, len(works)), of: make([][]place, len(workers)),
		taken: make([]int, len(workers)), spent: make([]float64, len(workers)), filled: make([]int64, len(workers)),
	}
	for work := range works {
		d.shares[work] = make([]int, len(works[work].Workers))
		for at, worker := range works[work].Workers {
			d.of[worker] = append(d.of[worker], place{work, at})
		}
	}
	return d
}

// FilledBytes is what so many pieces of a worker keep at a time: an even part of what the lost nodes kept, or more where it
// takes more than an even share.
func (w Work) FilledBytes(pieces int) int64 {
	if pieces == 0 {
		return 0
	}
	even := (w.InFlight + len(w.Workers) - 1) / len(w.Workers)
	return w.Bytes * int64(min(pieces, max(even, w.InFlight*pieces/w.Pieces)))
}

// set has a worker take so many pieces of a work, where it spends so long on its others.
func (d *division) set(p place, share int, others float64) {
	work, worker := d.works[p.work], d.works[p.work].Workers[p.at]
	d.taken[worker] += share - d.shares[p.work][p.at]
	d.filled[worker] += work.FilledBytes(share) - work.FilledBytes(d.shares[p.work][p.at])
	d.spent[worker] = others + float64(share)*work.Seconds
	d.shares[p.work][p.at] = share
}

// others is what a worker spends on all works but one. The sum is made anew: what is added and taken again leaves no rounding.
// O(works of a worker).
func (d *division) others(p place) (seconds float64) {
	of := d.of[d.works[p.work].Workers[p.at]]
	for _, other := range of {
		if other != p {
			seconds += float64(d.shares[other.work][other.at]) * d.works[other.work].Seconds
		}
	}
	d.looked += len(of)
	return seconds
}

// done is when a worker is done if it gets so many seconds more, at speed 1.
func (d *division) done(worker int, more float64) float64 {
	w := d.workers[worker]
	return w.BusySeconds + (d.spent[worker]+more)/w.Speed
}

// hasRoom reports whether a worker has room for one more piece.
func (d *division) hasRoom(p place) bool {
	work, share := d.works[p.work], d.shares[p.work][p.at]
	worker := work.Workers[p.at]
	more := work.FilledBytes(share+1) - work.FilledBytes(share)
	return d.filled[worker]+more <= d.workers[worker].RoomBytes
}

// end is when the last of those that take pieces is done: one that takes none delays nobody.
func (d *division) end() float64 {
	end := 0.0
	for worker := range d.workers {
		if d.taken[worker] > 0 {
			end = max(end, d.done(worker, 0))
		}
	}
	return end
}

// alike reports whether all pieces take as long, and whoever was asked had room: then no end is earlier.
func (d *division) alike() bool {
	return !d.crowded && !slices.ContainsFunc(d.works, func(w Work) bool { return w.Seconds != d.works[0].Seconds })
}

// deal gives each piece to who is done with it first, the longest pieces and those of the fewest workers before others.
func (d *division) deal() error {
	order := make([]int, len(d.works))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(d.works[b].Seconds, d.works[a].Seconds),
			cmp.Compare(len(d.works[a].Workers), len(d.works[b].Workers)))
	})
	for _, work := range order {
		var others []float64
		for _, worker := range d.works[work].Workers {
			others = append(others, d.spent[worker])
		}
		for range d.works[work].Pieces {
			at := d.soonest(work)
			if at < 0 {
				return Unfit{work}
			}
			d.set(place{work, at}, d.shares[work][at]+1, others[at])
		}
	}
	return nil
}

// soonest is which worker with room would be done with one more piece first, of equals who has fewer; -1 if there is none.
func (d *division) soonest(work int) int {
	best, soonest := -1, 0.0
	d.looked += len(d.works[work].Workers)
	for at, worker := range d.works[work].Workers {
		done := d.done(worker, d.works[work].Seconds)
		sooner := best < 0 || done < soonest || done == soonest && d.shares[work][at] < d.shares[work][best]
		switch {
		case !d.hasRoom(place{work, at}):
			d.crowded = true
		case sooner:
			best, soonest = at, done
		}
	}
	return best
}

// before is a time that is earlier by more than rounding.
func before(seconds float64) float64 { return seconds * (1 - 1e-12) }
