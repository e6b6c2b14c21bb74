package changes

import (
	"fmt"
	"time"
)

// Halt is that training stopped under a plan, or that what was trained under it was given up.
type Halt struct {
	At         time.Time // as the negotiator said first
	Generation uint64    // of the plan
	Step       uint64    // completed steps; zero: nobody knows
	Reason     string    // of who asked for it
	Reset      bool      // else training stopped
	Snapshots  bool      // training is to go on from the newest snapshot after the reset
	Unchanged  bool      // scripts keep their own state, and nobody knows the step at which they stopped
}

// String tells it as a person would, with who asked.
func (h Halt) String() string {
	switch {
	case h.Reset && h.Snapshots:
		return fmt.Sprintf("reset at step %d, to the newest snapshot: %s", h.Step, h.Reason)
	case h.Reset && h.Step == 0:
		return "reset: " + h.Reason
	case h.Reset:
		return fmt.Sprintf("reset at step %d, to the first one: %s", h.Step, h.Reason)
	case h.Unchanged:
		return "stop: " + h.Reason
	}
	return fmt.Sprintf("stop after step %d: %s", h.Step, h.Reason)
}

// mostHalts is how many are remembered.
const mostHalts = 256

// halt notes one, unless it is told again, as on each day.
func (r *Record) halt(halt Halt) {
	for _, known := range r.halts {
		if known.At.Equal(halt.At) && known.Reset == halt.Reset {
			return
		}
	}
	r.halts = append(r.halts, halt)
	r.halts = r.halts[max(0, len(r.halts)-mostHalts):]
}

// Halts returns the stops and resets under the plans from a generation on, the oldest first.
func (r *Record) Halts(from uint64) (halts []Halt) {
	for _, halt := range r.halts {
		if halt.Generation >= from {
			halts = append(halts, halt)
		}
	}
	return halts
}
