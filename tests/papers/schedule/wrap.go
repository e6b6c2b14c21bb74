// Package schedule orders all-reduces in other ways than the restorer's rounds, which take as little time as possible:
// in the fewest rounds, as Chameleon does (section IV), and without rounds, so that none waits for others that it
// shares no node with.
package schedule

import (
	"errors"
	"fmt"
	"slices"
)

// Piece is a stretch of time in which an item is reduced.
type Piece struct {
	Item       int
	Start, End int64
}

// Timeline is when each item is reduced: no device has two items at a time. Weights are times.
type Timeline struct {
	Pieces   []Piece // of items with weight, ascending by item, then by start
	Makespan int64
	AtLeast  int64 // no timeline is shorter; equal to Makespan when the timeline is proved optimal
}

// ErrNotContiguous says that the items of a device are not neighbours, which WrapAround and FewestRounds need.
var ErrNotContiguous = errors.New("the items of a device are not neighbours")

// WrapAround puts items of any weights on a timeline that is no longer than the most loaded device needs, which is
// optimal. devices lists the items of each, ascending. Each item begins where the one before it ends, modulo that
// length; an item that wraps is reduced in two pieces. The items of a device are neighbours and weigh no more than the
// length, so they never meet. At most one item is split each time the row of items passes the end. Linear in the input.
func WrapAround(weights []int64, devices [][]int) (Timeline, error) {
	if !contiguous(devices) {
		return Timeline{}, ErrNotContiguous
	}
	length := longest(weights, devices)
	timeline := Timeline{Makespan: length, AtLeast: length}
	start := int64(0)
	for item, weight := range weights {
		if weight == 0 {
			continue
		}
		end := start + weight
		if end <= length {
			timeline.Pieces = append(timeline.Pieces, Piece{item, start, end})
		} else {
			timeline.Pieces = append(timeline.Pieces, Piece{item, 0, end - length}, Piece{item, start, length})
		}
		start = end % length
	}
	return timeline, nil
}

// FewestRounds puts items into rounds: item x goes to round x mod w, w being the most items on one device. The items of
// a device, ascending, are neighbours, as those of a stage are. A device cannot do with fewer rounds, so that is
// optimal. Linear in the input.
func FewestRounds(items int, devices [][]int) (roundOf []int, err error) {
	if !contiguous(devices) {
		return nil, ErrNotContiguous
	}
	most := 1
	for d, device := range devices {
		if len(device) > 0 && (device[0] < 0 || device[len(device)-1] >= items) {
			return nil, fmt.Errorf("devices[%d]: expected items from 0 to %d, got %v", d, items-1, device)
		}
		most = max(most, len(device))
	}
	roundOf = make([]int, items)
	for item := range items {
		roundOf[item] = item % most
	}
	return roundOf, nil
}

// contiguous reports whether the items of every device, ascending, have no gap.
func contiguous(devices [][]int) bool {
	return !slices.ContainsFunc(devices, func(items []int) bool {
		return len(items) > 0 && items[len(items)-1]-items[0] != len(items)-1
	})
}

// longest is the weight of the most loaded device, or of a heavier item that no device has.
func longest(weights []int64, devices [][]int) int64 {
	length := int64(0)
	for _, weight := range weights {
		length = max(length, weight)
	}
	for _, items := range devices {
		load := int64(0)
		for _, item := range items {
			load += weights[item]
		}
		length = max(length, load)
	}
	return length
}
