package loop

import (
	"fmt"
	"time"

	"github.com/reknit/reknit/events"
)

// The memory is written so long after the first message that it does not know, and after so many at most, as in
// shared/service.
const (
	rememberAfter = time.Second
	mostRecent    = 4096
)

// recent is what was handled since the memory was written.
type recent struct {
	last   position
	events []events.Event
	count  int
	due    time.Time // when the memory is to be written, by the hub's clock; zero while it knows all
}

// note keeps the message that was handled. One that the machine could not bear has left no trace in it.
func (s *Service) note() {
	event := Heard(s.delivery.Message)
	s.recent.last = position{event.Sequence, event.ID}
	s.recent.count++
	if s.borne {
		s.recent.events = append(s.recent.events, event)
	}
	if s.recent.due.IsZero() {
		s.recent.due = s.busy.Add(rememberAfter)
	}
}

// Save lets an idle service write its memory where that is due. Its service has a timer for it.
func (s *Service) Save(now time.Time) bool {
	if s.point != Idle || s.recent.due.IsZero() || now.Before(s.recent.due) {
		return false
	}
	s.busy = now
	s.remember()
	return true
}

// Leave has an idle service that is to end write its memory, unless that knows all, and reports whether it may end.
func (s *Service) Leave(now time.Time) bool {
	if s.point != Idle || s.recent.due.IsZero() {
		return s.point == Idle || s.point == Ended
	}
	s.busy = now
	s.remember()
	return false
}

// remember begins to write the machine's memory.
func (s *Service) remember() {
	snapshot, err := s.machine.Snapshot()
	if err != nil {
		s.end(fmt.Errorf("memory: %w", err))
		return
	}
	next := page{instance: s.instance, position: s.recent.last, machine: snapshot, heard: s.memory.page.heard}
	if s.said > next.sequence {
		next.said = s.said
	}
	for _, read := range s.memory.page.apart {
		if read.sequence > next.sequence {
			next.apart = append(next.apart, read)
		}
	}
	s.memory.begin(s.bus, next)
	s.recent = recent{last: s.recent.last}
	s.point = Remember
}

// forget makes the machine what it was before the call at which it panicked.
func (s *Service) forget() error {
	if err := s.machine.Restore(s.memory.page.machine); err != nil {
		return err
	}
	for _, event := range s.recent.events {
		_, _ = s.machine.Handle(event)
	}
	return nil
}
