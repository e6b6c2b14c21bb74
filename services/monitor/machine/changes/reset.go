package changes

import "github.com/reknit/reknit/events"

// Resets tells a reset of training from one that was heard before: it is told again each day until there is a plan, and in answer to a user
// who asks for it once more.
type Resets struct{ last events.JobReset }

// Take returns the reset that an event tells; nil where it tells none, or the last one again.
func (r *Resets) Take(event events.Event) *events.JobReset {
	if event.Kind != events.TrainingReset {
		return nil
	}
	reset, err := events.Open[events.JobReset](event)
	if err != nil || reset.Generation == r.last.Generation && reset.Snapshots == r.last.Snapshots {
		return nil
	}
	r.last = reset
	return &reset
}
