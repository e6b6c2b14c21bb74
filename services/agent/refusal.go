package agent

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/machine"
)

const (
	firstAsk = time.Second // after a refusal; then twice as long each time
	lastAsk  = time.Minute // a negotiation for each request is what the others have to bear
)

// refusal is why the cluster does not take this node for now. It is asked again: the hours of a policy begin, and who
// objects may go.
type refusal struct {
	since time.Time     // of the first in a row; zero: the last request was granted
	pause time.Duration // before the next request
	waits bool          // the next request is not made yet
	told  string        // why it was not granted, as this node was told
}

// askLater asks for a place again after a pause. Called with the mutex held.
func (s *Session) askLater(reason string) {
	if s.refusal.since.IsZero() {
		s.refusal = refusal{since: time.Now(), pause: firstAsk}
	}
	s.refusal.told = fmt.Sprintf("the cluster does not take this node yet, which asks again in %v: %s", s.refusal.pause, reason)
	s.waits(machine.Waits{Reason: s.refusal.told, Since: s.refusal.since})
	s.waiting.times = 0 // the next refusal is the reminder
	s.refusal.waits = true
	time.AfterFunc(s.refusal.pause, func() {
		replaced := s.isReplaced()
		s.tell(func() []machine.Action { return s.askAgain(replaced) })
	})
	s.refusal.pause = min(2*s.refusal.pause, lastAsk)
}

// noteAsked keeps where the log has this incarnation's request.
func (s *Session) noteAsked(event events.Event, sequence uint64) {
	join, err := events.Open[events.Join](event)
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if err == nil && join.Incarnation == s.machine.Snapshot().Incarnation {
		s.asked = sequence
	}
}

// isReplaced reports whether a process asked for a place by this node's name after this one did. To ask again ends the
// other's membership. A log that does not tell in time is taken for a no, and while this one's request is on its way nobody
// asked after it.
func (s *Session) isReplaced() (replaced bool) {
	s.mutex.Lock()
	asked := s.asked
	s.mutex.Unlock()
	if asked == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(s.context, lookTime)
	defer cancel()
	subject := events.EventSubject(s.config.Cluster, events.JoinRequested, s.config.Node)
	err := s.bus.Repeat(ctx, "who asked last by this node's name", func(ctx context.Context) error {
		event, found, err := s.bus.LastEvent(ctx, events.EventStream, subject)
		if !found || err != nil {
			return err
		}
		join, err := events.Open[events.Join](event)
		replaced = err == nil && event.Sequence > asked && !strings.HasPrefix(join.Incarnation, s.process)
		return err
	})
	if err != nil && s.context.Err() == nil {
		slog.Warn("not known who asked last by this node's name", "node", s.config.Node, "error", err)
	}
	return replaced
}

// look tells the machine where another process has taken this node's name, unless it has asked again meanwhile. However many
// events had it look since, it looks once more.
func (s *Session) look() {
	for more := true; more; {
		s.mutex.Lock()
		incarnation := s.machine.Snapshot().Incarnation
		s.mutex.Unlock()
		replaced := s.isReplaced()
		s.tell(func() (actions []machine.Action) {
			if replaced && s.ended == nil && s.machine.Snapshot().Incarnation == incarnation {
				actions = s.machine.Replaced()
			}
			s.looks--
			more = s.looks > 0
			return actions
		})
	}
}

// rejoin asks for a place as a new incarnation once the cluster has gone on without this one, or leaves the node's name to
// another process that has taken it since.
func (s *Session) rejoin(reason string) {
	replaced := s.isReplaced()
	s.tell(func() []machine.Action {
		if s.ended != nil || s.context.Err() != nil {
			return nil
		}
		if replaced {
			if ends := s.machine.Replaced(); len(ends) > 0 {
				return ends
			}
		}
		slog.Warn("the cluster went on without this node; it joins again", "node", s.config.Node, "reason", reason)
		return s.newMember(replaced)
	})
}

// askAgain asks as a new incarnation, and for a trainer that may stand at its boundary already.
func (s *Session) askAgain(replaced bool) []machine.Action {
	if !s.refusal.waits || s.context.Err() != nil {
		return nil
	}
	s.refusal.waits = false
	if replaced {
		if ends := s.machine.Replaced(); len(ends) > 0 {
			return ends
		}
	}
	s.waiting.told, s.waiting.times = time.Now(), 1 // it may get no answer
	actions := s.newMember(replaced)
	if s.loop.state != nil {
		actions = append(actions, s.machine.Boundary(s.loop.done)...)
	}
	return actions
}

// granted ends the wait for a place. It is told that training goes on only where nothing else is waited for: the cluster may have been
// held since. Called with the mutex held.
func (s *Session) granted() {
	asked := s.refusal
	s.refusal = refusal{}
	if !asked.since.IsZero() && s.waiting.Reason == asked.told {
		s.waits(machine.Waits{Since: asked.since})
	}
}
