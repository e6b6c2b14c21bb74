package agent

import (
	"fmt"
	"time"

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
}

// askLater asks for a place again after a pause. Called with the mutex held.
func (s *Session) askLater(reason string) {
	if s.refusal.since.IsZero() {
		s.refusal = refusal{since: time.Now(), pause: firstAsk}
	}
	s.waits(machine.Waits{
		Reason: fmt.Sprintf("the cluster does not take this node yet, which asks again in %v: %s", s.refusal.pause, reason),
		Since:  s.refusal.since,
	})
	s.waiting.times = 0 // the next refusal is the reminder
	s.refusal.waits = true
	time.AfterFunc(s.refusal.pause, func() { s.tell(s.askAgain) })
	s.refusal.pause = min(2*s.refusal.pause, lastAsk)
}

// askAgain asks as a new incarnation, and for a trainer that may stand at its boundary already.
func (s *Session) askAgain() []machine.Action {
	if !s.refusal.waits || s.context.Err() != nil {
		return nil
	}
	s.refusal.waits = false
	actions := s.newMember()
	if s.loop.state != nil {
		actions = append(actions, s.machine.Boundary(s.loop.done)...)
	}
	return actions
}

// granted ends the wait for a place. Called with the mutex held.
func (s *Session) granted() {
	if since := s.refusal.since; !since.IsZero() {
		s.refusal = refusal{}
		s.waits(machine.Waits{Since: since})
	}
}
