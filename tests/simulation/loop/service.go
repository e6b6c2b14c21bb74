package loop

import (
	"errors"
	"fmt"
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
	StandBy     Point = "stand by"     // asks whether another instance works
	TakeLease   Point = "take lease"   // publishes that it acts from here on
	ReadLease   Point = "read lease"   // whether it is still the last
	Recall      Point = "recall"       // reads what the instance before remembered
	LookBack    Point = "look back"    // reads how far it came beyond that
	Sign        Point = "sign"         // writes it as its own, which ends the instance before
	JudgeSign   Point = "judge sign"   // who wrote, after a refusal of that
	FindHandled Point = "find handled" // whether the stream holds what was handled last
	FindEnd     Point = "find end"     // whether it dropped that
	Consume     Point = "consume"      // opens its consumer behind what was handled
	FindAge     Point = "find age"     // at which the stream drops what it has
	Drop        Point = "drop"         // the consumer of the instance before
	Count       Point = "count"        // the backlog
	Idle        Point = "idle"         // takes what comes
	Fetch       Point = "fetch"        // the payload of an event that it took
	Keep        Point = "keep"         // the payload, with the memory as it is
	Publish     Point = "publish"      // the next output
	Remember    Point = "remember"     // writes the memory, now and then
	JudgeMemory Point = "judge memory" // who wrote, after a refusal of that
	JudgeKeep   Point = "judge keep"   // the same
	Acknowledge Point = "acknowledge"  // the message
	GoBack      Point = "go back"      // to what was acknowledged, for a message was lost on its way
	Ended       Point = "ended"
)

// Waits as in shared/bus and shared/service. The hub sends so many messages ahead.
const (
	ackWait         = 5 * time.Second
	unreadableAfter = time.Minute
	missingAfter    = 2 * time.Second
	mostMissing     = 3 * time.Second
	insistPause     = 2 * time.Second
	standstill      = 10 * time.Second
	window          = 256
)

// Service is one instance of a service: a machine and where it stands. A crash is to drop it, a pause not to step it,
// a second one of the same name deposes it once it does not answer.
type Service struct {
	bus      *Bus
	machine  service.Machine
	name     string
	instance string
	speaker  events.Speaker
	working  func() bool
	recent   recent
	said     uint64 // up to which message all that it brought about was said, by instances before
	started  bool   // it reads behind its memory

	point       Point
	err         error
	complaints  []error
	answered    time.Time // when another instance did last, while this one stood by; zero: never
	leases      int       // that it said it takes
	leads       bool      // it took one
	publication *Publication
	memory      memory
	offset      time.Duration // from this host's clock to that of the log
	busy        time.Time     // since when it is at one thing; zero: it waits
	stands      bool          // it insists on what only time or an operator makes possible

	consumer     *stream.Consumer
	number       uint64 // of the last delivery that came
	backlog      uint64
	inbox        []*stream.Delivery
	delivery     *stream.Delivery   // being handled; nil for what came without a message
	outputs      []events.Event     // still to publish
	silent       bool               // the delivery brought about nothing
	done         []*stream.Delivery // still to be acknowledged
	acknowledged []*stream.Delivery // that are being acknowledged
	borne        bool               // the machine could bear the message
	logged       bool               // the machine hears all of what it said without a message
	goesBack     repeats
	fetched      fetching
	missing      allowance
}

// Start returns a service that has done nothing yet. The instance's id must be new. It asks working whether another
// instance of the service answers, and stands by while one does.
func Start(b *Bus, name, instance string, machine service.Machine, working func() bool) *Service {
	return &Service{
		bus: b, machine: machine, name: name, instance: instance, working: working, point: Provision,
		speaker: events.Speaker{Source: "/" + name, Cluster: b.cluster},
		memory:  memory{bucket: b.server.Snapshots, key: b.cluster + "." + name},
	}
}

// Point returns where the service stands.
func (s *Service) Point() Point { return s.point }

// Err returns why the service ended: bus.ErrFenced, service.ErrLogWentBackwards, bus.ErrFull for its memory, or a
// request that failed while it started.
func (s *Service) Err() error { return s.err }

// CaughtUp reports whether the service waits and handled what was in the log when it started: only then does time pass
// for it.
func (s *Service) CaughtUp() bool { return s.point == Idle && s.backlog == 0 }

// Works reports whether the service answers another instance that asks, if it can be reached and is not paused.
func (s *Service) Works(now time.Time) bool {
	starts := s.point == TakeLease || s.leads && !s.started
	handles := !s.busy.IsZero() && now.Sub(s.busy) <= standstill
	return (s.point == Idle || starts || handles) && !s.stands && s.point != Ended
}

// ErrSaidBefore says that the stream held an output already, though its cause is new.
var ErrSaidBefore = errors.New("said before, though its cause is new")

// ErrPanicked says that the machine panicked at an event, a tick or an input, and forgot it.
var ErrPanicked = errors.New("the machine panicked")

// Complaints returns what the service logged as errors and survived: events that were not said, because they may not
// travel or were said with other words, events said before, and panics with their stacks.
func (s *Service) Complaints() []error { return s.complaints }

// Now returns the time on the clock of the log, by a host's clock.
func (s *Service) Now(host time.Time) time.Time { return host.Add(s.offset) }

// Step makes the next request, which has that fate, and returns how long the service then waits. There is nothing to
// step at Idle and Ended.
func (s *Service) Step(now time.Time, fate stream.Fate) time.Duration {
	fate = s.bus.fate(fate)
	switch s.point {
	case Publish, TakeLease:
		return s.publish(now, fate)
	case Remember, Sign, Keep:
		return s.write(now, fate)
	case JudgeMemory, JudgeSign, JudgeKeep:
		return s.judge(fate)
	case Fetch:
		return s.fetch(now, fate)
	case GoBack:
		return s.goBack(fate)
	case Acknowledge:
		for _, done := range s.acknowledged { // they go out together: what is not acknowledged comes again, and is known
			_ = s.consumer.Ack(done, fate)
		}
		if len(s.outputs) > 0 {
			s.nextOutput()
			return 0
		}
		s.goOn()
	case Idle, Ended:
	default:
		return s.prepare(now, fate)
	}
	return 0
}

// rest waits for what comes next.
func (s *Service) rest() { s.delivery, s.busy, s.point = nil, time.Time{}, Idle }

func (s *Service) end(err error) {
	s.point, s.err = Ended, fmt.Errorf("%s: %w", s.name, err)
}

func (s *Service) publish(now time.Time, fate stream.Fate) time.Duration {
	wait := s.publication.Step(now, fate)
	if !s.publication.Done() {
		return wait
	}
	err := s.publication.Err
	if s.stands = errors.Is(err, bus.ErrTaken) || errors.Is(err, bus.ErrFull); s.stands {
		s.publication = s.bus.Publish(s.publication.event) // to end would bring the next instance to the same event
		return insistPause
	}
	switch {
	case s.point == TakeLease && err == nil:
		s.bus.Fence(s.publication.event.SubjectName(), s.publication.Ack.Sequence)
		s.point = ReadLease
		return wait
	case s.point == TakeLease && !s.leads && errors.Is(err, bus.ErrFenced): // another was first
		s.point = StandBy
		return wait
	case s.point == TakeLease:
		s.end(err)
		return wait
	case errors.Is(err, bus.ErrOtherWords) || errors.Is(err, ErrUnfit):
		s.complaints = append(s.complaints, err)
	case err != nil:
		s.end(err)
		return wait
	case s.publication.Ack.Duplicate && s.delivery != nil && !s.heardBefore() && s.outputs[0].Kind != events.EventRefused:
		s.complaints = append(s.complaints, fmt.Errorf("%w: %s of %s", ErrSaidBefore, s.outputs[0].Kind,
			s.outputs[0].Subject))
	}
	s.outputs = s.outputs[1:]
	s.nextOutput()
	return wait
}

// heardBefore reports whether the message was delivered to the instance before.
func (s *Service) heardBefore() bool { return s.delivery.Message.Sequence <= s.memory.page.heard }

// write stores the next page, or finds that it cannot.
func (s *Service) write(now time.Time, fate stream.Fate) time.Duration {
	err := storeFull(s.memory.write(now, fate))
	switch {
	case err == nil:
		s.wrote()
	case errors.Is(err, jetstream.ErrKeyRevisionMismatch) && s.point == Sign:
		s.point = JudgeSign
	case errors.Is(err, jetstream.ErrKeyRevisionMismatch) && s.point == Keep:
		s.point = JudgeKeep
	case errors.Is(err, jetstream.ErrKeyRevisionMismatch):
		s.point = JudgeMemory
	case transient(err):
		return s.memory.repeats.after(err, requestTimeout)
	default:
		s.end(err)
	}
	return 0
}

func (s *Service) wrote() {
	switch {
	case s.point == Keep:
		s.deliver(nil)
	case s.point == Sign && s.memory.page.sequence > 0:
		s.point = FindHandled
	case s.point == Sign:
		if err := s.restore(); err != nil {
			s.end(err)
		}
	default:
		s.rest()
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
	case s.point == JudgeKeep:
		s.point = Keep
	default:
		s.point = Remember
	}
	return s.memory.repeats.after(err, requestTimeout)
}
