package links

import "time"

// Shape is what a link does to what passes, each way. The zero Shape is a link that is cut.
type Shape struct {
	MegabitsPerSecond float64
	Delay             time.Duration // one way
}

// Payload is the part of a link's rate that a stream can have: of a packet of 1,500 bytes 52 are headers.
const Payload = 1448.0 / 1500

// BytesPerSecond is the most payload that passes.
func (s Shape) BytesPerSecond() float64 { return s.MegabitsPerSecond * 1e6 / 8 * Payload }

// queueLength is how much a link holds before it drops, in time at its rate: what routers at the edge of a wide area
// have.
const queueLength = 50 * time.Millisecond

// Burst is what a link that was idle passes at once, in time at its rate. A relay that is let run late makes up for it
// with that; a stream whose sender paces it would lose what it missed. Shapers of the kernel (tbf) have one as well.
const Burst = 5 * time.Millisecond

// line is one way of a link: a queue that drops its tail when full and empties at a rate, and a delay behind it.
type line struct {
	shape Shape
	free  time.Time // when the queue will be empty
}

// admit takes a packet of so many bytes on the wire, and says when it arrives, or that it is dropped.
func (l *line) admit(now time.Time, bytes int) (arrival time.Time, admitted bool) {
	if l.shape.MegabitsPerSecond <= 0 || l.free.Sub(now) > queueLength {
		return time.Time{}, false
	}
	if earliest := now.Add(-Burst); l.free.Before(earliest) {
		l.free = earliest
	}
	l.free = l.free.Add(time.Duration(float64(bytes) * 8e3 / l.shape.MegabitsPerSecond))
	if l.free.Before(now) {
		return now.Add(l.shape.Delay), true
	}
	return l.free.Add(l.shape.Delay), true
}
