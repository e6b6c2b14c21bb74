package agent

import (
	"context"
	"log/slog"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/machine"
)

// replayedAfter is the age from which an event is one that this node missed: it was frozen or cut off, and hears in order what was said
// meanwhile.
const replayedAfter = 5 * time.Second

// isOver reports whether an event tells that training stands still, is an old one, and the log has it go on since. A log that does not
// tell in time is taken for a no.
func (s *Session) isOver(event events.Event) bool {
	standsStill := event.Kind == events.ClusterHeld || event.Kind == events.TrainingStopped
	if !standsStill || time.Since(event.Logged) < replayedAfter {
		return false
	}
	ctx, cancel := context.WithTimeout(s.context, lookTime)
	defer cancel()
	return s.isFollowed(ctx, event)
}

// isFollowed reports whether something came of a stop or a hold since.
func (s *Session) isFollowed(ctx context.Context, stands events.Event) bool {
	for _, kind := range []events.Kind{events.NegotiationOpened, events.StepReleased, events.TrainingReset, events.TrainingStopped} {
		ends, found, err := s.bus.LastEvent(ctx, events.EventStream, events.EventSubject(s.config.Cluster, kind, "*"))
		if err == nil && found && ends.Sequence > stands.Sequence {
			return true
		}
	}
	return false
}

// passOver takes no notice of a hold that is over. A stop that is over ended the membership of this node, which asks for a place again.
func (s *Session) passOver(event events.Event) {
	slog.Info("not heeded, for training went on since", "node", s.config.Node, "event", event.Kind, "told", event.Time)
	if event.Kind == events.TrainingStopped {
		s.tell(func() []machine.Action {
			return s.machine.Forgotten("training stopped and went on while this node stood still")
		})
	}
}
