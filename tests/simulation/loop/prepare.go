package loop

import (
	"errors"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/shared/service"
	"github.com/reknit/reknit/tests/simulation/stream"
)

// Waits of a start, as in shared/bus and shared/service.
const (
	provisionTimeout = 2 * time.Second // the first time
	startPause       = 250 * time.Millisecond
	standByPause     = 200 * time.Millisecond
	answerTimeout    = 2 * time.Second
	reconnects       = time.Second
)

// prepare makes the next request of a start: the lease first and the memory behind it, so that the instance before
// cannot act on something newer. A read that fails ends the process, which whoever runs it starts again.
func (s *Service) prepare(now time.Time, fate stream.Fate) time.Duration {
	switch s.point {
	case Provision:
		if err := s.bus.server.Events.Info(fate); err != nil {
			return startPause + patienceFor(err, provisionTimeout)
		}
		s.point = StandBy
		return 0
	case StandBy:
		return s.standBy(now, fate)
	}
	steps := map[Point]func(time.Time, stream.Fate) error{
		ReadLease: s.readLease, Recall: s.recall, LookBack: s.lookBack, FindHandled: s.findHandled, FindEnd: s.findEnd,
		Consume: s.consume, FindAge: s.findAge, Drop: s.drop, Count: s.count,
	}
	if err := steps[s.point](now, fate); err != nil {
		s.end(err)
		return patienceFor(err, requestTimeout)
	}
	return 0
}

// standBy goes on when the log answers and no other instance does, which takes as long as an answer may take.
func (s *Service) standBy(now time.Time, fate stream.Fate) time.Duration {
	taken := events.EventSubject(s.bus.cluster, events.LeaseTaken, s.name)
	last, err := s.bus.server.Events.Last(taken, fate)
	if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
		return standByPause + patienceFor(err, answerTimeout)
	}
	if s.working() {
		s.answered = now
		return standByPause
	}
	if !s.bus.Together(now) || now.Sub(s.answered) <= reconnects {
		return standByPause
	}
	s.bus.Fence(taken, last.Sequence)
	s.takeLease(now)
	return answerTimeout
}

func (s *Service) takeLease(now time.Time) {
	s.leases++
	reason := s.instance + "." + strconv.Itoa(s.leases)
	lease := &events.Lease{Service: s.name, Instance: s.instance}
	s.publication = s.bus.Publish(s.speaker.First(now, reason, events.LeaseTaken, s.name, lease))
	s.point = TakeLease
}

func (s *Service) readLease(host time.Time, fate stream.Fate) error {
	last, err := s.bus.server.Events.Last(s.publication.event.SubjectName(), fate)
	if err != nil {
		return err
	}
	switch first := last.ID == s.publication.event.ID; {
	case !first && !s.leads:
		s.point = StandBy
		return nil
	case !first:
		return bus.ErrFenced
	}
	s.offset, s.point = last.Logged.Sub(host), Recall
	if s.leads { // it renews its lease
		s.memory.begin(s.bus, s.memory.page)
		s.point = Remember
	}
	s.leads = true
	return nil
}

func (s *Service) recall(_ time.Time, fate stream.Fate) error {
	there, revision, err := s.memory.read(fate)
	if err != nil {
		return err
	}
	s.memory.page, s.memory.revision, s.memory.before, s.point = there, revision, there.instance, LookBack
	return nil
}

// lookBack learns how far the instance before came, which its consumer tells, and signs that too: the consumer is dropped
// after this.
func (s *Service) lookBack(_ time.Time, fate stream.Fate) error {
	acknowledged, heard, err := s.bus.server.Events.Reach(s.memory.durable(s.memory.before), fate)
	if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return err
	}
	next := s.memory.page
	next.instance = s.instance
	if acknowledged > max(next.said, next.sequence) {
		next.said = acknowledged
	}
	next.heard, s.point = max(next.heard, heard), Sign
	s.memory.begin(s.bus, next)
	return nil
}

func (s *Service) findHandled(_ time.Time, fate stream.Fate) error {
	held, err := s.bus.server.Events.Get(s.memory.page.sequence, fate)
	words, _ := held.Data.(Words)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		s.point = FindEnd
		return nil
	case err != nil:
		return err
	case s.memory.page.id != "" && words.Event.ID != s.memory.page.id:
		return service.ErrLogWentBackwards
	}
	return s.restore()
}

func (s *Service) findEnd(_ time.Time, fate stream.Fate) error {
	end, err := s.bus.server.Events.End(fate)
	if err != nil {
		return err
	}
	if end <= s.memory.page.sequence {
		return service.ErrLogWentBackwards
	}
	return s.restore()
}

// restore gives the machine its memory. One that has none yet goes back to its beginning after a panic.
func (s *Service) restore() (err error) {
	s.point, s.recent.last = Consume, s.memory.page.position
	s.said = max(s.memory.page.said, s.memory.page.sequence)
	if s.memory.page.machine == nil {
		s.memory.page.machine, err = s.machine.Snapshot()
		return err
	}
	return s.machine.Restore(s.memory.page.machine)
}

func (s *Service) consume(_ time.Time, fate stream.Fate) (err error) {
	var subjects []string
	for _, kind := range s.machine.Hears() {
		subjects = append(subjects, events.EventSubject(s.bus.cluster, kind, "*"))
	}
	s.point = FindAge
	s.consumer, err = s.bus.server.Events.Consumer(s.memory.durable(s.instance), stream.ConsumerConfig{
		After: s.memory.page.sequence, Subjects: subjects, AckWait: ackWait, Window: window,
	}, fate)
	return err
}

func (s *Service) findAge(_ time.Time, fate stream.Fate) error {
	s.point = Drop
	return s.bus.server.Events.Info(fate)
}

func (s *Service) drop(_ time.Time, fate stream.Fate) error {
	s.point = Count
	return s.bus.server.Events.Drop(s.memory.durable(s.memory.before), fate)
}

func (s *Service) count(_ time.Time, fate stream.Fate) (err error) {
	s.point, s.started = Idle, true
	s.backlog, err = s.consumer.Pending(fate)
	return err
}
