package machine

import (
	"cmp"
	"slices"

	"github.com/reknit/reknit/events"
)

// told is what was said last of each direction, in their order. It is kept as it is remembered: to sort the directions of a
// thousand nodes was half of what it took to write down the monitor's memory.
type told []events.Measurement

// of returns what was said of a direction. O(log directions).
func (t told) of(way direction) (said events.Measurement, known bool) {
	i, known := t.find(way)
	if known {
		said = t[i]
	}
	return said, known
}

// note keeps a measurement in place of what was said of its direction before. O(directions) for the first, O(log directions)
// for the others.
func (t *told) note(measured events.Measurement) {
	i, known := t.find(direction{measured.From, measured.To})
	if known {
		(*t)[i] = measured
		return
	}
	*t = slices.Insert(*t, i, measured)
}

func (t told) find(way direction) (i int, known bool) {
	return slices.BinarySearchFunc(t, way, func(said events.Measurement, way direction) int {
		return compareDirections(direction{said.From, said.To}, way)
	})
}

func compareDirections(a, b direction) int {
	return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to))
}
