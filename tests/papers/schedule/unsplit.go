package schedule

import (
	"cmp"
	"math"
	"slices"
)

// effort bounds branch and bound, in devices looked at.
const effort = 10_000_000

// Unsplit puts whole items on a timeline, each as early as those before it allow. It tries orders by branch and bound
// until the timeline is as short as the most loaded device, all orders are tried, or the effort is used up. Proved
// optimal for small instances (a dozen items); for more items usually still as short as the bound.
func Unsplit(weights []int64, devices [][]int) Timeline {
	o := &orderer{
		weights: weights, devices: make([][]int, len(weights)),
		free: make([]int64, len(devices)), load: make([]int64, len(devices)),
		start: slices.Repeat([]int64{unplaced}, len(weights)),
		best:  Timeline{Makespan: -1, AtLeast: longest(weights, devices)},
	}
	for device, items := range devices {
		for _, item := range items {
			o.devices[item] = append(o.devices[item], device)
			o.load[device] += weights[item]
		}
	}
	for item, weight := range weights {
		if weight == 0 {
			o.start[item] = 0
		}
	}
	if o.branch(0, 0) {
		o.best.AtLeast = o.best.Makespan
	}
	return o.best
}

const unplaced = -1

// orderer places items in order of their start.
type orderer struct {
	weights []int64
	devices [][]int // per item
	free    []int64 // per device: from when on
	load    []int64 // per device: weight still to be placed
	start   []int64 // per item
	best    Timeline
	looked  int
}

// branch tries every item as the next, when the last began at since and all so far are done at makespan. It reports
// whether the best is proved optimal for these choices: false when effort ran out.
func (o *orderer) branch(since, makespan int64) bool {
	found := o.best.Makespan >= 0
	if found && (o.best.Makespan == o.best.AtLeast || o.tooLong(makespan)) {
		return true
	}
	if found && o.looked > effort {
		return false
	}
	next := o.candidates(since)
	if len(next) == 0 {
		if !slices.Contains(o.start, unplaced) {
			o.keep(makespan)
		}
		return true
	}
	proved := true
	for _, piece := range next {
		proved = o.try(piece, makespan) && proved
	}
	return proved
}

// tooLong reports whether no order of the rest can beat the best.
func (o *orderer) tooLong(makespan int64) bool {
	o.looked += len(o.free)
	for device, free := range o.free {
		makespan = max(makespan, free+o.load[device])
	}
	return makespan >= o.best.Makespan
}

// candidates lists the open items that can begin no earlier than since, the earliest first and of those the one whose
// devices have most left to do. An open item that could begin before since belongs to an order tried elsewhere; one
// that cannot begin before another is done may as well wait for it.
func (o *orderer) candidates(since int64) []Piece {
	var next []Piece
	end := int64(math.MaxInt64)
	for item, start := range o.start {
		if start != unplaced {
			continue
		}
		begin := int64(0)
		for _, device := range o.devices[item] {
			begin = max(begin, o.free[device])
		}
		if begin >= since {
			next = append(next, Piece{item, begin, begin + o.weights[item]})
			end = min(end, begin+o.weights[item])
		}
	}
	next = slices.DeleteFunc(next, func(p Piece) bool { return p.Start >= end })
	slices.SortStableFunc(next, func(a, b Piece) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(o.urgency(b.Item), o.urgency(a.Item)))
	})
	return next
}

func (o *orderer) urgency(item int) int64 {
	most := int64(0)
	for _, device := range o.devices[item] {
		most = max(most, o.load[device])
	}
	return most
}

// try places an item, goes on, and takes it out again.
func (o *orderer) try(piece Piece, makespan int64) bool {
	devices := o.devices[piece.Item]
	before := make([]int64, len(devices))
	for k, device := range devices {
		before[k] = o.free[device]
		o.free[device] = piece.End
		o.load[device] -= o.weights[piece.Item]
	}
	o.start[piece.Item] = piece.Start
	proved := o.branch(piece.Start, max(makespan, piece.End))
	o.start[piece.Item] = unplaced
	for k, device := range devices {
		o.free[device] = before[k]
		o.load[device] += o.weights[piece.Item]
	}
	return proved
}

// keep remembers what is placed as the best so far.
func (o *orderer) keep(makespan int64) {
	o.best.Makespan, o.best.Pieces = makespan, nil
	for item, start := range o.start {
		if weight := o.weights[item]; weight > 0 {
			o.best.Pieces = append(o.best.Pieces, Piece{item, start, start + weight})
		}
	}
}
