package loop

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/shared/service"
	"github.com/reknit/reknit/tests/simulation/stream"
)

// Point is where a service stands: before its next request.
type Point string

// The points of a service's life, in their order. Idle is the only one at which it waits for something to happen.
const (
	Provision   Point = "provision"    // looks for the streams
	TakeLease   Point = "take lease"   // publishes that it acts from here on
	ReadLease   Point = "read lease"   // whether it is still the last
	Recall      Point = "recall"       // reads what the instance before remembered
	Sign        Point = "sign"         // writes it as its own, which ends the instance before
	JudgeSign   Point = "judge sign"   // who wrote, after a refusal of that
	FindHandled Point = "find handled" // whether the stream holds what was handled last
	Consume     Point = "consume"      // opens its consumer
	Reset       Point = "reset"        // back to what was acknowledged
	StartAfter  Point = "start after"  // behind what was handled
	Count       Point = "count"        // the backlog
	Idle        Point = "idle"         // takes what comes
	Fetch       Point = "fetch"        // the payload of an event that it took
	Publish     Point = "publish"      // the next output
	Remember    Point = "remember"     // writes the memory
	JudgeMemory Point = "judge memory" // who wrote, after a refusal of that
	Acknowledge Point = "acknowledge"  // the message
	GiveBack    Point = "give back"    // the message, because another instance took the lease
	Ended       Point = "ended"
)

// ackWait is as in shared/bus. The client asks for messagesAhead messages at a time.
const (
	ackWait       = 5 * time.Second
	requestWait   = 5 * time.Second
	provisionWait = 10 * time.Second
	messagesAhead = 2
)

// Service is one instance of a service: a machine and where it stands. A crash is to drop it, a pause not to step it,
// a second one of the same name deposes it.
type Service struct {
	bus      *Bus
	machine  service.Machine
	name     string
	instance string
	speaker  events.Speaker

	point       Point
	err         error
	publication *Publication
	memory      memory
	offset      time.Duration
	consumer    *stream.Consumer
	seen        uint64
	backlog     uint64
	inbox       []*stream.Delivery
	delivery    *stream.Delivery // being handled; nil for what came without a message
	outputs     []events.Event   // still to publish
	complaints  []error
}

// Start returns a service that has done nothing yet. The instance's id must be new.
func Start(b *Bus, name, instance string, machine service.Machine) *Service {
	return &Service{
		bus: b, machine: machine, name: name, instance: instance, point: Provision,
		speaker: events.Speaker{Source: "/" + name, Cluster: b.cluster},
		memory:  memory{bucket: b.server.Snapshots, key: b.cluster + "." + name},
	}
}

// Point returns where the service stands.
func (s *Service) Point() Point { return s.point }

// Err returns why the service ended: bus.ErrFenced, bus.ErrTaken, service.ErrLogWentBackwards, or a request that failed
// while it started.
func (s *Service) Err() error { return s.err }

// CaughtUp reports whether the service handled what was in the log when it started: only then does time pass for it.
func (s *Service) CaughtUp() bool { return s.point == Idle && s.backlog == 0 }

// ErrSaidBefore says that the stream held an output already, though its cause is new.
var ErrSaidBefore = errors.New("said before, though its cause is new")

// Complaints returns what the service logged as errors and survived: events that were not said, because they may not
// travel or were said with other words, and events said before.
func (s *Service) Complaints() []error { return s.complaints }

// Now returns the time on the clock of the log, by a host's clock.
func (s *Service) Now(host time.Time) time.Time { return host.Add(s.offset) }

// Step makes the next request, which has that fate, and returns how long the service then waits. There is nothing to
// step at Idle and Ended.
func (s *Service) Step(now time.Time, fate stream.Fate) time.Duration {
	switch s.point {
	case Publish, TakeLease:
		return s.publish(now, fate)
	case Remember, Sign:
		return s.write(now, fate)
	case JudgeMemory, JudgeSign:
		return s.judge(fate)
	case Fetch:
		return s.fetch(fate)
	case Acknowledge:
		_ = s.consumer.Ack(s.delivery, fate) // what is not acknowledged comes again, and is known
		s.delivery, s.point = nil, Idle
	case GiveBack:
		_ = s.consumer.Nak(s.delivery, fate)
		s.point = Ended
	case Idle, Ended:
	default:
		return s.prepare(now, fate)
	}
	return 0
}

func (s *Service) end(err error) {
	s.point, s.err = Ended, fmt.Errorf("%s: %w", s.name, err)
	if errors.Is(err, bus.ErrFenced) && s.delivery != nil {
		s.point = GiveBack // the instance that holds the lease need not wait for it
	}
}

// Poll takes what the hub has for the client, which asks ahead. A world that pauses a service may call it: the hub
// still delivers what was asked for.
func (s *Service) Poll(now time.Time) {
	if s.consumer == nil || s.point == Ended || len(s.inbox) >= messagesAhead {
		return
	}
	if delivery := s.consumer.Next(now); delivery != nil {
		s.inbox = append(s.inbox, delivery)
	}
}

// Take hands an idle service its next message, if there is one.
func (s *Service) Take(now time.Time) bool {
	s.Poll(now)
	if s.point != Idle || len(s.inbox) == 0 {
		return false
	}
	s.delivery, s.inbox = s.inbox[0], s.inbox[1:]
	s.backlog -= min(s.backlog, 1)
	if s.delivery.Message.Data.(Words).Apart != "" {
		s.point = Fetch
		return true
	}
	s.deliver(nil)
	return true
}

// Tick lets an idle service know the time, if it caught up.
func (s *Service) Tick(host time.Time) bool {
	return s.Input(host, func(now time.Time) []events.Event { return s.machine.Tick(now) })
}

// Input gives an idle service what came without a message, if it caught up.
func (s *Service) Input(host time.Time, input func(now time.Time) []events.Event) bool {
	if !s.CaughtUp() {
		return false
	}
	if s.outputs = input(s.Now(host)); len(s.outputs) > 0 {
		s.nextOutput()
	}
	return true
}

// deliver gives the machine the message that was taken, unless it is known.
func (s *Service) deliver(refusal *bus.Refusal) {
	message := s.delivery.Message
	if message.Sequence <= s.memory.page.sequence {
		s.point = Acknowledge
		return
	}
	if words := message.Data.(Words); words.Refusal != nil {
		refusal = words.Refusal
	}
	if refusal != nil {
		sequence := strconv.FormatUint(message.Sequence, 10)
		s.outputs = []events.Event{s.speaker.First(message.Logged, sequence, events.EventRefused, sequence, refusal)}
	} else {
		s.outputs, _ = s.machine.Handle(Heard(message)) // an event without sense does not come again
	}
	s.nextOutput()
}

// fetch gets the payload of the event that was taken. It repeats while the object store does not answer.
func (s *Service) fetch(fate stream.Fate) time.Duration {
	words := s.delivery.Message.Data.(Words)
	_, err := s.bus.server.Payloads.Get(words.Apart, fate)
	switch {
	case err == nil:
		s.deliver(nil)
	case errors.Is(err, jetstream.ErrObjectNotFound):
		s.deliver(&bus.Refusal{Reason: bus.Invalid, Detail: "dataref: " + err.Error(), Subject: s.delivery.Message.Subject})
	default:
		return lastRepeatWait + patienceFor(err, objectTimeout)
	}
	return 0
}

// nextOutput goes on with the next event to say, or with remembering that all was said.
func (s *Service) nextOutput() {
	if len(s.outputs) > 0 {
		s.publication, s.point = s.bus.Publish(s.outputs[0]), Publish
		return
	}
	snapshot, err := s.machine.Snapshot()
	if err != nil {
		s.end(fmt.Errorf("memory: %w", err))
		return
	}
	next := page{s.instance, s.memory.page.sequence, s.memory.page.id, snapshot}
	if s.delivery != nil {
		next.sequence, next.id = s.delivery.Message.Sequence, s.delivery.Message.Data.(Words).Event.ID
	}
	s.memory.next, s.point = next, Remember
}

func (s *Service) publish(now time.Time, fate stream.Fate) time.Duration {
	wait := s.publication.Step(now, fate)
	if !s.publication.Done() {
		return wait
	}
	err := s.publication.Err
	switch {
	case s.point == TakeLease && err == nil:
		s.bus.Fence(s.publication.event.SubjectName(), s.publication.Ack.Sequence)
		s.point = ReadLease
		return wait
	case errors.Is(err, bus.ErrOtherWords) || errors.Is(err, ErrUnfit):
		s.complaints = append(s.complaints, err)
	case err != nil:
		s.end(err)
		return wait
	case s.publication.Ack.Duplicate && s.delivery != nil && !s.redelivered():
		s.complaints = append(s.complaints, fmt.Errorf("%w: %s of %s", ErrSaidBefore, s.outputs[0].Kind, s.outputs[0].Subject))
	}
	s.outputs = s.outputs[1:]
	s.nextOutput()
	return wait
}

func (s *Service) redelivered() bool {
	return s.delivery.Deliveries > 1 || s.delivery.Message.Sequence <= s.seen
}

// write stores the next page, or finds that it cannot.
func (s *Service) write(now time.Time, fate stream.Fate) time.Duration {
	err := s.memory.write(now, fate)
	switch {
	case err == nil:
		s.wrote()
	case errors.Is(err, jetstream.ErrKeyExists) && s.point == Sign:
		s.point = JudgeSign
	case errors.Is(err, jetstream.ErrKeyExists):
		s.point = JudgeMemory
	default:
		return startPause + patienceFor(err, writeTimeout)
	}
	return 0
}

func (s *Service) wrote() {
	switch {
	case s.point == Sign && s.memory.page.sequence == 0:
		s.point = Consume
	case s.point == Sign:
		s.point = FindHandled
	case s.delivery == nil:
		s.point = Idle
	default:
		s.point = Acknowledge
	}
}

// judge goes on after a write that was refused: it repeats the write, or another instance ended this one.
func (s *Service) judge(fate stream.Fate) time.Duration {
	err := s.memory.judge(fate)
	switch {
	case errors.Is(err, bus.ErrFenced) && s.point == JudgeSign:
		s.point = Recall // the instance before still wrote
		return 0
	case errors.Is(err, bus.ErrFenced):
		s.end(err)
		return 0
	case s.point == JudgeSign:
		s.point = Sign
	default:
		s.point = Remember
	}
	return startPause + patienceFor(err, writeTimeout)
}
