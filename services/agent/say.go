package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/machine"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/shared/telemetry"
)

// mostHeard is how many events the node may still be at work on: a negotiation and its plan have five.
const mostHeard = 16

// heard is when the last events came that the node answers, the newest last.
type heard []heardEvent

type heardEvent struct {
	id string
	at time.Time
}

// note keeps when an event came. Shards are offered by the thousand, and nothing is said because of one.
func (h *heard) note(event events.Event) {
	if event.Kind == events.ShardOffered {
		return
	}
	*h = append(*h, heardEvent{event.ID, time.Now()})
	*h = (*h)[max(0, len(*h)-mostHeard):]
}

// since returns when the event came that causes another, or now where that is not known.
func (h *heard) since(cause string) time.Time {
	for _, event := range *h {
		if event.id == cause {
			return event.at
		}
	}
	return time.Now()
}

// publish says an event, in the trace of the change that it belongs to.
func (s *Session) publish(ctx context.Context, event events.Event) (bus.Ack, error) {
	s.mutex.Lock()
	since := s.heard.since(event.Cause)
	s.mutex.Unlock()
	end := telemetry.Send(ctx, &event, since)
	ack, err := s.bus.Publish(ctx, event)
	end(err)
	if err == nil {
		go s.hearRefusal(s.context, event, ack.Sequence)
	}
	if event.Kind == events.JoinRequested && err == nil {
		s.noteAsked(event, ack.Sequence)
	}
	return ack, err
}

// publishAll says the events of actions, each once.
func (s *Session) publishAll(ctx context.Context, actions []machine.Action) error {
	for _, action := range actions {
		if said, ok := action.(machine.Say); ok {
			_, err := s.publish(ctx, said.Event)
			for errors.Is(err, bus.ErrLogReplaced) && ctx.Err() == nil {
				_, err = s.publish(ctx, said.Event) // it follows from no log
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// say publishes until the stream has acknowledged: the hub may be away for a while, and the trainer must not stand
// still for it. So may the log be full until an operator or time makes room. Answers to a negotiation that is over do
// no harm.
func (s *Session) say(ctx context.Context, event events.Event) {
	s.logUnsaid(ctx, event, s.insist(ctx, event))
}

// logUnsaid tells why an event was not said, as long as somebody may still say it.
func (s *Session) logUnsaid(ctx context.Context, event events.Event, err error) {
	switch {
	case errors.Is(err, bus.ErrLogReplaced):
		slog.Info("not said, for it is of a log that is gone", "node", s.config.Node, "event", event.Kind)
	case err != nil && ctx.Err() == nil:
		slog.Error("event not said", "node", s.config.Node, "event", event.Kind, "error", err)
	}
}

func (s *Session) insist(ctx context.Context, event events.Event) error {
	ack, err := s.publish(ctx, event)
	for errors.Is(err, bus.ErrFull) && pause(ctx, insistPause) {
		ack, err = s.publish(ctx, event)
	}
	if err == nil {
		slog.Debug("said", "node", s.config.Node, "event", event.Kind, "subject", event.Subject, "sequence", ack.Sequence)
	}
	return err
}

// fact says what training goes on to tell while the hub is away: of what is about the same the newest only. Called with
// the mutex held.
func (s *Session) fact(about string, event events.Event) {
	s.facts[about] = event
	if !s.telling {
		s.telling = true
		go s.sayFacts()
	}
}

func (s *Session) sayFacts() {
	for {
		event, ctx, more := s.nextFact()
		if !more {
			return
		}
		s.sayFact(ctx, event)
	}
}

// sayFact says a fact. A request to remove a part is given up with its answer.
func (s *Session) sayFact(ctx context.Context, event events.Event) {
	switch event.Kind {
	case events.WithdrawalRequested:
		s.logUnsaid(ctx, event, s.sayWithin(ctx, event))
	case events.SnapshotFailed, events.SnapshotResumed:
		s.sayUnwritten(ctx, event)
	default:
		s.say(ctx, event)
	}
}

// sayUnwritten says what keeps snapshots from being written, or that nothing does any more, and waits for a hub that is away. The kit of
// an older installation lets a node say nothing of it: that is told once, and not tried again.
func (s *Session) sayUnwritten(ctx context.Context, event events.Event) {
	if s.oldKit {
		return
	}
	err := s.sayWithin(ctx, event)
	for errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		if s.oldKit = s.mayNotSay(event.SubjectName()); s.oldKit {
			slog.Warn("this node may not tell the cluster why its snapshots are not written, and reknit status does not know: provision "+
				"again, its kit is older than that event", "node", s.config.Node, "event", event.Kind)
			return
		}
		s.logUnsaid(ctx, event, err)
		err = s.sayWithin(ctx, event)
	}
	s.logUnsaid(ctx, event, err)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		s.mutex.Lock()
		s.machine.Untold(event)
		s.mutex.Unlock()
	}
}

// sayWithin says an event as insist does, but no longer than a cluster takes that answers.
func (s *Session) sayWithin(ctx context.Context, event events.Event) error {
	limited, cancel := context.WithTimeout(ctx, withdrawTime)
	defer cancel()
	err := s.insist(limited, event)
	if limited.Err() != nil && err != nil {
		err = fmt.Errorf("%w: %w", limited.Err(), err)
	}
	return err
}

// nextFact takes the fact to be said next; more is false where there is none.
func (s *Session) nextFact() (event events.Event, ctx context.Context, more bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for about, event := range s.facts {
		delete(s.facts, about)
		return event, s.answers, true
	}
	s.telling = false
	return events.Event{}, nil, false
}
