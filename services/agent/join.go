package agent

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/machine"
)

// joinHolds is for how long a request for a place is as it was made. It says for how long the agent runs: of one that waits for the hub for
// an hour, while others stop the job, the agent would be taken for one that was started after the stop.
var joinHolds = 30 * time.Second

// join asks for a place, and returns when the request is stored.
func (s *Session) join(ctx context.Context) error {
	for {
		s.mutex.Lock()
		actions := s.newMember(false)
		s.mutex.Unlock()
		limited, cancel := context.WithTimeout(ctx, joinHolds)
		err := s.publishAll(limited, actions)
		isStale := limited.Err() != nil && ctx.Err() == nil
		cancel()
		switch {
		case err == nil || !isStale:
			return err
		case s.hasAskedAny(ctx, actions):
			return nil
		}
	}
}

// hasAskedAny reports whether the log has the request for a place that is among actions.
func (s *Session) hasAskedAny(ctx context.Context, actions []machine.Action) bool {
	return slices.ContainsFunc(actions, func(action machine.Action) bool {
		said, isSaid := action.(machine.Say)
		return isSaid && said.Event.Kind == events.JoinRequested && s.hasAsked(ctx, said.Event)
	})
}

// newMember draws an incarnation. It ends what was being said in the name of the one before. Called with the mutex
// held.
func (s *Session) newMember(back bool) []machine.Action {
	s.silence()
	s.answers, s.silence = context.WithCancel(s.context)
	s.joins++
	s.asked = 0
	return s.machine.Join(time.Now(), fmt.Sprintf("%s-%d", s.process, s.joins), back)
}

// sayJoin says a request for a place, and has the node ask anew if that could not be said for too long and is not in the log.
func (s *Session) sayJoin(ctx context.Context, event events.Event) {
	limited, cancel := context.WithTimeout(ctx, joinHolds)
	defer cancel()
	s.say(limited, event)
	if limited.Err() == nil || ctx.Err() != nil || s.hasAsked(ctx, event) {
		return
	}
	s.tell(func() []machine.Action {
		if ctx.Err() != nil || s.ended != nil || s.asked > 0 {
			return nil
		}
		return s.newMember(false)
	})
}

// hasAsked reports whether the log has a request for a place whose acknowledgement was lost. Made anew it would end the membership for
// which it asked. A log that does not tell in time is taken not to have it.
func (s *Session) hasAsked(ctx context.Context, join events.Event) bool {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	last, found, err := s.bus.LastEvent(ctx, events.EventStream, join.SubjectName())
	if err != nil || !found || last.ID != join.ID {
		return false
	}
	s.noteAsked(last, last.Sequence)
	go s.hearRefusal(s.context, last, last.Sequence)
	return true
}
