package loop

import (
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/shared/service"
	"github.com/reknit/reknit/tests/simulation/stream"
)

// prepare makes the next request of a start: the lease first and the memory behind it, so that the instance before
// cannot act on something newer. A read that fails ends the process, which whoever runs it starts again.
func (s *Service) prepare(now time.Time, fate stream.Fate) time.Duration {
	if s.point == Provision {
		return s.provision(now, fate)
	}
	steps := map[Point]func(time.Time, stream.Fate) error{
		ReadLease: s.readLease, Recall: s.recall, FindHandled: s.findHandled,
		Consume: s.consume, Reset: s.reset, StartAfter: s.startAfter, Count: s.count,
	}
	if err := steps[s.point](now, fate); err != nil {
		s.end(err)
		return patienceFor(err, requestWait)
	}
	return 0
}

func (s *Service) provision(now time.Time, fate stream.Fate) time.Duration {
	if err := s.bus.server.Events.Info(fate); err != nil {
		return startPause + patienceFor(err, provisionWait)
	}
	lease := &events.Lease{Service: s.name, Instance: s.instance}
	s.publication = s.bus.Publish(s.speaker.First(now, s.instance, events.LeaseTaken, s.name, lease))
	s.point = TakeLease
	return 0
}

func (s *Service) readLease(host time.Time, fate stream.Fate) error {
	last, err := s.bus.server.Events.Last(s.publication.event.SubjectName(), fate)
	if err != nil {
		return err
	}
	if last.ID != s.publication.event.ID {
		return bus.ErrFenced
	}
	s.offset, s.point = last.Logged.Sub(host), Recall
	return nil
}

func (s *Service) recall(_ time.Time, fate stream.Fate) error {
	there, revision, err := s.memory.read(fate)
	if err != nil {
		return err
	}
	there.instance = s.instance
	s.memory.next, s.memory.revision, s.point = there, revision, Sign
	return nil
}

func (s *Service) findHandled(_ time.Time, fate stream.Fate) error {
	held, err := s.bus.server.Events.Get(s.memory.page.sequence, fate)
	words, _ := held.Data.(Words)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return service.ErrLogWentBackwards
	case err != nil:
		return err
	case s.memory.page.id != "" && words.Event.ID != s.memory.page.id:
		return service.ErrLogWentBackwards
	}
	s.point = Consume
	return s.machine.Restore(s.memory.page.machine)
}

func (s *Service) consume(_ time.Time, fate stream.Fate) (err error) {
	var subjects []string
	for _, kind := range s.machine.Hears() {
		subjects = append(subjects, events.EventSubject(s.bus.cluster, kind, "*"))
	}
	s.consumer, err = s.bus.server.Events.Consumer(s.bus.cluster+"-"+s.name, subjects, ackWait, fate)
	if err == nil {
		s.seen, s.point = s.consumer.Delivered(), Reset
	}
	return err
}

func (s *Service) reset(_ time.Time, fate stream.Fate) error {
	s.point = StartAfter
	return s.consumer.Reset(fate)
}

func (s *Service) startAfter(_ time.Time, fate stream.Fate) error {
	s.point = Count
	return s.consumer.ResetTo(s.memory.page.sequence+1, fate)
}

func (s *Service) count(_ time.Time, fate stream.Fate) (err error) {
	s.point = Idle
	s.backlog, err = s.consumer.Pending(fate)
	return err
}
