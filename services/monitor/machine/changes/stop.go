package changes

import (
	"fmt"
	"time"

	"github.com/reknit/reknit/events"
)

// Stop is that of a job which may go on another time.
type Stop struct {
	events.JobStop
	At time.Time `json:"at"` // as the negotiator says, which tells of it again later: by the log's clock
}

// StopOf reads the event that tells it; nil where it is none.
func StopOf(event events.Event) *Stop {
	if event.Kind != events.TrainingStopped {
		return nil
	}
	stop, err := events.Open[events.JobStop](event)
	if err != nil {
		return nil
	}
	return &Stop{stop, event.Time}
}

// String tells it as a person would, and how training goes on.
func (s *Stop) String() string {
	if s.Tier == "" {
		return "stopped; the same scripts, started again by the names that their nodes had, go on from their own checkpoints"
	}
	return fmt.Sprintf("stopped at step %d, snapshot complete at %d (%s); the same scripts, started again where the snapshots are, "+
		"go on from there, and train longer if all are given more steps", s.Step, s.Step, s.Tier)
}
