package loop

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/tests/simulation/stream"
)

// Poll takes what the hub has for the client, which asks ahead; it may be lost on its way. A world that pauses a service
// may call it: the hub still delivers what was asked for.
func (s *Service) Poll(now time.Time, fate stream.Fate) {
	if s.consumer == nil || s.bus.cut || s.point == Ended || len(s.inbox) >= window {
		return
	}
	delivery := s.consumer.Next(now)
	if delivery != nil && fate != stream.Lost && fate != stream.Unheard {
		s.inbox = append(s.inbox, delivery)
	}
}

// Take hands an idle service its next message, if there is one. A service whose consumer the next instance dropped ends.
func (s *Service) Take(now time.Time, fate stream.Fate) bool {
	if s.point != Idle {
		return false
	}
	if s.Poll(now, fate); len(s.inbox) == 0 {
		if s.consumer.Dropped() {
			s.end(bus.ErrFenced)
		}
		return s.point == Ended
	}
	s.delivery, s.inbox = s.inbox[0], s.inbox[1:]
	if s.number++; s.delivery.Number != s.number {
		s.busy, s.inbox, s.goesBack, s.point = now, nil, newRepeats(s.bus), GoBack
		return true
	}
	if s.delivery.Message.Sequence <= s.recent.last.sequence { // its acknowledgement was lost
		s.busy, s.acknowledged, s.point = now, []*stream.Delivery{s.delivery}, Acknowledge
		return true
	}
	s.busy, s.backlog = now, s.backlog-min(s.backlog, 1)
	if s.delivery.Message.Data.(Words).Apart != "" && !s.memory.page.has(s.delivery.Message.Sequence) {
		s.fetched, s.point = fetching{repeats: newRepeats(s.bus), began: now}, Fetch
		return true
	}
	s.deliver(nil)
	return true
}

// goBack has everything come again that is not acknowledged: a message was lost on its way. A service whose consumer the
// next instance dropped ends.
func (s *Service) goBack(fate stream.Fate) time.Duration {
	_, _, gone := s.bus.server.Events.Reach(s.memory.durable(s.instance), fate)
	if errors.Is(gone, jetstream.ErrConsumerNotFound) {
		s.end(bus.ErrFenced)
		return 0
	}
	if err := s.consumer.ResetTo(s.recent.last.sequence+1, fate); err != nil {
		return s.goesBack.after(err, requestTimeout)
	}
	s.number = 0
	s.rest()
	return 0
}

// Tick lets an idle service know the time, if it caught up and everybody can have spoken since the last reconnection.
func (s *Service) Tick(host time.Time) bool {
	return s.bus.Together(host) && s.Input(host, s.machine.Tick)
}

// Input gives an idle service what came without a message, if it caught up.
func (s *Service) Input(host time.Time, input func(now time.Time) []events.Event) bool {
	if !s.CaughtUp() {
		return false
	}
	outputs, err := s.guard(func() []events.Event { return input(s.Now(host)) })
	if err == nil && len(outputs) > 0 {
		s.busy, s.outputs, s.logged = host, outputs, s.hearsAll(outputs)
		s.nextOutput()
	}
	return true
}

// hearsAll reports whether the machine hears all that it says itself, so that the log remembers it.
func (s *Service) hearsAll(outputs []events.Event) bool {
	hears := s.machine.Hears()
	return !slices.ContainsFunc(outputs, func(output events.Event) bool { return !slices.Contains(hears, output.Kind) })
}

// Renew lets an idle service take its lease again and write its memory again, as it does four times within the age at
// which the stream drops its messages.
func (s *Service) Renew(now time.Time) bool {
	if s.point != Idle {
		return false
	}
	s.busy = now
	s.takeLease(now)
	return true
}

// guard calls the machine. After a panic the machine is again what it was before.
func (s *Service) guard(call func() []events.Event) (outputs []events.Event, err error) {
	defer func() {
		cause := recover()
		if cause == nil {
			return
		}
		outputs, err = nil, fmt.Errorf("%w: %v", ErrPanicked, cause)
		s.complaints = append(s.complaints, fmt.Errorf("%w\n%s", err, debug.Stack()))
		if restoring := s.forget(); restoring != nil {
			s.end(fmt.Errorf("after %w: restore: %w", err, restoring))
		}
	}()
	return call(), nil
}

// deliver gives the machine the message that was taken.
func (s *Service) deliver(refusal *bus.Refusal) {
	message := s.delivery.Message
	s.borne = false
	if words := message.Data.(Words); words.Refusal != nil {
		refusal = words.Refusal
	}
	if refusal != nil && refusal.Reason == bus.Unreadable && message.Sequence <= s.said && !s.isRefused(stream.Answered) {
		s.end(fmt.Errorf("message %d was handled and cannot be read again: %s", message.Sequence, refusal.Detail))
		return
	}
	if refusal != nil {
		everybody := events.Speaker{Cluster: s.bus.cluster} // one record, whoever refuses it
		s.outputs, s.silent = []events.Event{s.quarantine(everybody, refusal)}, false
		s.nextOutput()
		return
	}
	var err error
	s.outputs, err = s.guard(func() []events.Event {
		outputs, _ := s.machine.Handle(Heard(message)) // an event without sense does not come again
		return outputs
	})
	s.borne = err == nil
	if err != nil {
		poison := &bus.Refusal{Reason: bus.Poison, Detail: fmt.Sprintf("%s: %v", s.name, err), Subject: message.Subject}
		s.outputs = []events.Event{s.quarantine(s.speaker, poison)}
	}
	if s.silent = len(s.outputs) == 0; s.point != Ended {
		s.nextOutput()
	}
}

func (s *Service) quarantine(speaker events.Speaker, refusal *bus.Refusal) events.Event {
	sequence := strconv.FormatUint(s.delivery.Message.Sequence, 10)
	record := speaker.First(s.delivery.Message.Logged, sequence, events.EventRefused, sequence, refusal)
	record.Source = s.speaker.Source
	return record
}

// nextOutput goes on with the next event to say, or with what comes when all was said. Events that a message brought
// about are not said if an earlier instance was done with that message.
func (s *Service) nextOutput() {
	if s.delivery != nil && s.delivery.Message.Sequence <= s.said {
		s.outputs = nil
	}
	switch {
	case len(s.outputs) > 0 && len(s.done) > 0: // to say them may take long
		s.acknowledge()
	case len(s.outputs) > 0:
		s.publication, s.point = s.bus.Publish(s.outputs[0]), Publish
	case s.delivery != nil:
		s.note()
		s.handled()
	case s.logged:
		s.rest()
	default:
		s.remember()
	}
}

// mostSilent is how many messages that brought about nothing are acknowledged at once, as in shared/service.
const mostSilent = 64

// handled goes on behind a message that is done with: it is acknowledged, or will be with those behind it.
func (s *Service) handled() {
	s.done = append(s.done, s.delivery)
	if s.silent && s.delivery.More && !s.heardBefore() && len(s.done) < mostSilent {
		s.goOn()
		return
	}
	s.acknowledge()
}

// acknowledge sends what is still to be acknowledged.
func (s *Service) acknowledge() { s.acknowledged, s.done, s.point = s.done, nil, Acknowledge }

// goOn writes the memory where much was handled since, or waits for what comes next.
func (s *Service) goOn() {
	if s.recent.count < mostRecent && s.memory.page.size()-int64(len(s.memory.page.machine)) < mostApart {
		s.rest()
		return
	}
	s.delivery = nil
	s.remember()
}
