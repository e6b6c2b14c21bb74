// Package loop models shared/bus and shared/service on the modelled stream: each request to the hub is one step, so
// that a simulated world can crash, pause, double or depose a process between any two. A test holds it to the real one.
package loop

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/tests/simulation/stream"
)

// Bus is one process's connection to the hub, as shared/bus is.
type Bus struct {
	server  *stream.Server
	cluster string
	whole   int // bytes of the largest payload that travels in its event
	fence   *stream.Expect
}

// Connect returns a connection. A payload of more than whole bytes travels through the object store.
func Connect(server *stream.Server, cluster string, whole int) *Bus {
	return &Bus{server: server, cluster: cluster, whole: whole}
}

// Words is what a message of the modelled stream carries.
type Words struct {
	Event   events.Event
	Apart   string       // digest of the event's data, where that travels through the object store
	Refusal *bus.Refusal // in the event's place, for a message that is none
}

// Heard returns the event of a message, as a reader of the stream gets it.
func Heard(message *stream.Message) events.Event {
	event := message.Data.(Words).Event
	event.Sequence, event.Logged = message.Sequence, message.Logged
	return event
}

// Patience, as in shared/bus and nats.go.
const (
	publishTimeout  = 5 * time.Second
	objectTimeout   = 2 * time.Minute
	leaderPatience  = 500 * time.Millisecond // two more attempts of nats.go
	firstRepeatWait = 50 * time.Millisecond
	lastRepeatWait  = 2 * time.Second
	payloadLifetime = 30 * time.Minute // an object that old is put anew
	envelopeBytes   = 512              // of an event without its data
)

// stage is the next request of a publication.
type stage int

const (
	lookUp  stage = iota // whether the payload is stored already
	put                  // the payload
	send                 // the event
	last                 // who took the write-once subject
	compare              // what the stream holds in the event's place
	done
)

// Publication is one Publish under way.
type Publication struct {
	bus     *Bus
	event   events.Event
	apart   string
	stage   stage
	attempt int
	wait    time.Duration
	held    uint64
	refusal error

	Ack bus.Ack // once it is done
	Err error
}

// Publish begins to store an event once. It repeats until the stream acknowledges. Err is as that of bus.Publish.
func (b *Bus) Publish(event events.Event) *Publication {
	p := &Publication{bus: b, event: event, attempt: 1, wait: firstRepeatWait}
	if err := check(event, b.cluster); err != nil {
		p.end(bus.Ack{}, err)
		return p
	}
	if len(event.Data) > b.whole {
		p.apart = events.Digest(event.Data)
	}
	p.begin()
	return p
}

// Fence binds every later Publish on the event stream to the lease at sequence.
func (b *Bus) Fence(subject string, sequence uint64) {
	b.fence = &stream.Expect{Subject: subject, Sequence: sequence}
}

// Done reports whether the publication ended, with Ack or Err.
func (p *Publication) Done() bool { return p.stage == done }

func (p *Publication) begin() {
	p.stage = send
	if p.apart != "" {
		p.stage = lookUp
	}
}

func (p *Publication) end(ack bus.Ack, err error) {
	p.stage, p.Ack, p.Err = done, ack, err
	if err != nil {
		p.Err = fmt.Errorf("publish %s: %w", p.event.Kind, err)
	}
}

// Step makes the next request. It returns how long the publisher then waits.
func (p *Publication) Step(now time.Time, fate stream.Fate) time.Duration {
	switch p.stage {
	case lookUp:
		at, err := p.bus.server.Payloads.Info(p.apart, fate)
		p.stage = put
		if err == nil && now.Sub(at) < payloadLifetime {
			p.stage = send
		}
	case put:
		err := p.bus.server.Payloads.Put(now, p.apart, int64(len(p.event.Data)), p.event.Data, fate)
		if err != nil {
			return p.fail(err, objectTimeout)
		}
		p.stage = send
	case send:
		return p.send(now, fate)
	case last:
		return p.findTaken(fate)
	case compare:
		return p.compare(fate)
	}
	return 0
}

// fail ends the publication, or lets it begin anew after a wait where a repeat may help.
func (p *Publication) fail(err error, patience time.Duration) time.Duration {
	if !transient(err) {
		p.end(bus.Ack{}, err)
		return 0
	}
	wait := p.wait + patienceFor(err, patience)
	p.attempt++
	p.wait = min(2*p.wait, lastRepeatWait)
	p.begin()
	return wait
}

// patienceFor returns how long a client waits until it knows that a request failed.
func patienceFor(err error, patience time.Duration) time.Duration {
	switch {
	case errors.Is(err, stream.ErrNoAnswer):
		return patience
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		return leaderPatience
	}
	return 0
}

func transient(err error) bool {
	var api *jetstream.APIError
	if errors.As(err, &api) {
		return api.Code >= 500
	}
	return !errors.Is(err, bus.ErrTaken) && !errors.Is(err, bus.ErrFenced) && !errors.Is(err, bus.ErrOtherWords)
}

func (p *Publication) stream() (s *stream.Stream, writeOnce bool) {
	if row, _ := p.event.Kind.Row(); row.Plan {
		return p.bus.server.Plans, true
	}
	return p.bus.server.Events, false
}

func (p *Publication) send(now time.Time, fate stream.Fate) time.Duration {
	message := stream.Message{
		Subject: p.event.SubjectName(), ID: p.event.ID, Bytes: envelopeBytes, Data: Words{Event: p.event, Apart: p.apart},
	}
	if p.apart == "" {
		message.Bytes += int64(len(p.event.Data))
	}
	log, writeOnce := p.stream()
	expect := p.bus.fence
	if writeOnce {
		expect = nil
	}
	ack, err := log.Publish(now, message, expect, fate)
	var api *jetstream.APIError
	switch {
	case err == nil && !ack.Duplicate:
		p.end(bus.Ack{Sequence: ack.Sequence}, nil)
		return 0
	case err == nil:
		p.stage, p.held = compare, ack.Sequence
		return 0
	case errors.As(err, &api) && writeOnce:
		p.stage, p.refusal = last, err
		return 0
	case errors.As(err, &api) && wrongLastSequence(api):
		err = fmt.Errorf("%w (%s)", bus.ErrFenced, api.Description)
	}
	return p.fail(err, publishTimeout)
}

func wrongLastSequence(api *jetstream.APIError) bool {
	return api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
		api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant
}

// findTaken tells, after a refusal by a write-once stream, whether the subject is taken, and where.
func (p *Publication) findTaken(fate stream.Fate) time.Duration {
	log, _ := p.stream()
	there, err := log.Last(p.event.SubjectName(), fate)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return p.fail(p.refusal, publishTimeout)
	case err != nil:
		return p.fail(errors.Join(p.refusal, err), publishTimeout)
	}
	p.stage, p.held = compare, there.Sequence
	return 0
}

// compare reads back what the stream holds in the event's place: the same words, or others.
func (p *Publication) compare(fate stream.Fate) time.Duration {
	log, writeOnce := p.stream()
	there, err := log.Get(p.held, fate)
	if err != nil {
		return p.fail(err, publishTimeout)
	}
	words, _ := there.Data.(Words)
	switch same := words.Event.ID == p.event.ID && bytes.Equal(words.Event.Data, p.event.Data); {
	case same:
		// After a lost acknowledgement the repeat is the first.
		p.end(bus.Ack{Sequence: p.held, Duplicate: p.attempt == 1}, nil)
	case writeOnce:
		p.end(bus.Ack{}, fmt.Errorf("%w: %s", bus.ErrTaken, there.Subject))
	default:
		p.end(bus.Ack{}, fmt.Errorf("%w: id %s at sequence %d", bus.ErrOtherWords, p.event.ID, p.held))
	}
	return 0
}

// ErrUnfit says that an event may not travel: the machine that says it is wrong.
var ErrUnfit = errors.New("no event of the catalogue")

// check is the part of the bus's check that a machine can fail: who speaks, of what, and a payload that is valid.
func check(event events.Event, cluster string) error {
	row, known := event.Kind.Row()
	switch {
	case !known || event.Cluster != cluster || !row.Authorised(event.Source):
		return fmt.Errorf("%w: %q said by %q in %q", ErrUnfit, event.Kind, event.Source, event.Cluster)
	case !events.Token(event.ID) || !events.Token(event.Subject):
		return fmt.Errorf("%w: id %q, subject %q", ErrUnfit, event.ID, event.Subject)
	}
	if err := events.Decode(event.Data, row.New()); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrUnfit, event.Kind, err)
	}
	return nil
}
