package main

import (
	"slices"
	"time"
)

// steps is how training went on.
type steps struct {
	done   uint64 // by whoever is furthest
	last   time.Duration
	usual  time.Duration // of a step while nothing fails
	before uint64        // steps before the usual one is measured
	since  time.Duration
	calm   uint64          // steps when failures begin
	holds  []time.Duration // what steps took beyond a usual one
	end    time.Duration
}

// longHold is how much longer than usual a step takes that counts as a hold.
const longHold = 500 * time.Millisecond

func (c *course) step(step uint64) {
	s, now := &c.steps, c.world.Now()
	if step <= s.done {
		return
	}
	took := now - s.last
	s.done, s.last = step, now
	switch {
	case now < calm/2:
		s.before, s.since = step, now
	case now < calm:
		s.calm, s.usual = step, (now-s.since)/time.Duration(step-s.before)
	case took > s.usual+longHold:
		s.holds = append(s.holds, took-s.usual)
	}
}

// share is that of the steps done since failures began, of those that a calm run would have done.
func (s *steps) share() float64 {
	return float64(s.done-s.calm) * s.usual.Seconds() / (s.end - calm).Seconds()
}

// middle returns the median.
func middle(list []time.Duration) time.Duration {
	if len(list) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(list))
	return sorted[len(sorted)/2]
}

func longest(list []time.Duration) time.Duration {
	if len(list) == 0 {
		return 0
	}
	return slices.Max(list)
}
