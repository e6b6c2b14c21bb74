package world

import (
	"fmt"
	"time"

	"github.com/reknit/reknit/events"
)

// Until lets time pass until an event of a kind is stored, and reports whether one was within a minute.
func (w *World) Until(kind events.Kind) bool {
	before := w.count(kind)
	for end := w.now + time.Minute; w.now < end && w.count(kind) == before; {
		w.run(w.now + time.Millisecond)
	}
	return w.count(kind) > before
}

func (w *World) count(kind events.Kind) int {
	count := 0
	for _, log := range w.hub.log {
		for _, event := range log {
			if event.Kind == kind {
				count++
			}
		}
	}
	return count
}

// Settle mends all that is broken, lets time pass until everybody who lives trains, and says how it ended.
func (w *World) Settle() string {
	w.heal()
	held := w.goOn()
	if !held {
		w.compare()
	}
	w.judge()
	switch {
	case len(w.Violations) > 0:
		return "VIOLATION " + w.Violations[0]
	case held:
		return "held: what is missing is nowhere"
	}
	if w.ended {
		return "the job is complete"
	}
	return fmt.Sprintf("all who live train under generation %d", w.generation())
}
