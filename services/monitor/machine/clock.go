package machine

import "time"

// clock counts the seconds that have passed since the machine was first told the time. The machine's durations are
// differences of this count, and the times of its events are the log's. A host's clock may be set back by an hour; the
// count never goes back: the service's times carry Go's monotonic reading, which Sub prefers, and of times without one
// a step back counts as nothing.
type clock struct {
	last   time.Time
	passed time.Duration
}

// seconds takes the time and returns the count, as ring 0 takes it.
func (c *clock) seconds(at time.Time) float64 {
	if !c.last.IsZero() {
		c.passed += max(0, at.Sub(c.last))
	}
	c.last = at
	return c.passed.Seconds()
}
