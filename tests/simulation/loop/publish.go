package loop

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/tests/simulation/stream"
)

const envelopeBytes = 512 // of an event without its data

// stage is the next request of a publication.
type stage int

const (
	lookUp  stage = iota // whether the payload is stored already
	put                  // the payload
	send                 // the event
	lease                // whose it is, after a refusal
	taken                // who took the write-once subject, after a refusal
	compare              // what the stream holds in the event's place
	done
)

// Publication is one Publish under way.
type Publication struct {
	bus     *Bus
	event   events.Event
	apart   string
	stage   stage
	repeats repeats
	again   bool // it is not the first attempt
	held    uint64
	refusal error

	Ack bus.Ack // once it is done
	Err error
}

// Publish begins to store an event once. It repeats until the stream acknowledges. Err is as that of bus.Publish, and
// ErrUnfit for an event that may not travel.
func (b *Bus) Publish(event events.Event) *Publication {
	p := &Publication{bus: b, event: event, repeats: newRepeats(b)}
	if err := check(&p.event, b.cluster); err != nil {
		p.end(bus.Ack{}, err)
		return p
	}
	if len(event.Data) > b.whole {
		p.apart = events.Digest(event.Data)
	}
	p.begin()
	return p
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
	fate = p.bus.fate(fate)
	log, writeOnce := p.stream()
	switch p.stage {
	case lookUp:
		at, whole, err := log.Payloads.Info(p.apart, fate)
		p.stage = put
		if err == nil && whole && now.Sub(at) < events.FreshAge {
			p.stage = send
		}
	case put:
		err := log.Payloads.Put(now, p.apart, packed(p.event.Data), nil, fate) // what is read is the event's
		if err != nil {
			return p.fail(err, objectTimeout)
		}
		p.stage = send
	case send:
		return p.send(now, fate, log, writeOnce)
	case lease:
		return p.findLease(fate)
	case taken:
		return p.findTaken(fate, log)
	case compare:
		return p.compare(fate, log, writeOnce)
	}
	return 0
}

// fail ends the publication, or lets it begin anew after a wait where a repeat may help.
func (p *Publication) fail(err error, patience time.Duration) time.Duration {
	if err = storeFull(err); !transient(err) {
		p.end(bus.Ack{}, err)
		return 0
	}
	p.again = true
	p.begin()
	return p.repeats.after(err, patience)
}

func (p *Publication) stream() (log *stream.Stream, writeOnce bool) {
	if row, _ := p.event.Kind.Row(); row.Plan {
		return p.bus.server.Plans, true
	}
	return p.bus.server.Events, false
}

func (p *Publication) send(now time.Time, fate stream.Fate, log *stream.Stream, writeOnce bool) time.Duration {
	message := stream.Message{
		Subject: p.event.SubjectName(), ID: p.event.ID, Bytes: envelopeBytes, Data: Words{Event: p.event, Apart: p.apart},
	}
	if p.apart == "" {
		message.Bytes += int64(len(p.event.Data))
	}
	expect := p.bus.fence
	if writeOnce {
		expect = nil
	}
	ack, err := log.Publish(now, message, expect, fate)
	var api *jetstream.APIError
	switch {
	case err == nil && !ack.Duplicate:
		p.end(bus.Ack{Sequence: ack.Sequence}, nil)
		p.trimPlans(log)
	case err == nil:
		p.stage, p.held = compare, ack.Sequence
	case errors.As(err, &api) && writeOnce:
		p.stage, p.refusal = taken, err
	case errors.As(err, &api) && wrongLastSequence(api):
		p.stage, p.refusal = lease, err
	default:
		return p.fail(err, requestTimeout)
	}
	return 0
}

// trimEvery is after how many plans those are dropped that are too many, as in shared/bus.
const trimEvery = 64

func (p *Publication) trimPlans(log *stream.Stream) {
	generation, err := strconv.ParseUint(p.event.Subject, 10, 64)
	if log != p.bus.server.Plans || err != nil || generation%trimEvery != 0 {
		return
	}
	DropPayloads(log, log.Purge(events.PlansKept))
}

// DropPayloads drops those of messages that a log has dropped.
func DropPayloads(log *stream.Stream, dropped []*stream.Message) {
	for _, message := range dropped {
		log.Payloads.Remove(message.Data.(Words).Apart)
	}
}

// packed is how many bytes a payload takes in its store. Those that travel apart in an installation are compressed, as in
// shared/bus.
func packed(data []byte) int64 {
	if len(data) <= events.MaxEventBytes {
		return int64(len(data))
	}
	var count counter
	writer, _ := gzip.NewWriterLevel(&count, gzip.BestSpeed) // a level that there is
	_, _ = writer.Write(data)                                // a counter takes all
	_ = writer.Close()
	return int64(count)
}

type counter int64

func (c *counter) Write(data []byte) (int, error) {
	*c += counter(len(data))
	return len(data), nil
}

// findLease tells, after a refusal, whether the lease is another's: the server says the same while a publish of ours
// that expects it is on its way.
func (p *Publication) findLease(fate stream.Fate) time.Duration {
	last, err := p.bus.server.Events.Last(p.bus.fence.Subject, fate)
	switch {
	case (err == nil || errors.Is(err, jetstream.ErrMsgNotFound)) && last.Sequence == p.bus.fence.Sequence:
		err = p.refusal
	case err == nil || errors.Is(err, jetstream.ErrMsgNotFound):
		err = bus.ErrFenced
	}
	return p.fail(err, requestTimeout)
}

// findTaken tells, after a refusal by a write-once stream, whether the subject is taken, and where.
func (p *Publication) findTaken(fate stream.Fate, log *stream.Stream) time.Duration {
	there, err := log.Last(p.event.SubjectName(), fate)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return p.fail(p.refusal, requestTimeout)
	case err != nil:
		return p.fail(err, requestTimeout)
	}
	p.stage, p.held = compare, there.Sequence
	return 0
}

// compare reads back what the stream holds in the event's place: the same words, or others. An event that it holds no more was said.
func (p *Publication) compare(fate stream.Fate, log *stream.Stream, writeOnce bool) time.Duration {
	there, err := log.Get(p.held, fate)
	isDropped := errors.Is(err, jetstream.ErrMsgNotFound) && !writeOnce
	if err != nil && !isDropped {
		return p.fail(err, requestTimeout)
	}
	words, _ := there.Data.(Words)
	switch same := isDropped || words.Event.ID == p.event.ID && bytes.Equal(words.Event.Data, p.event.Data); {
	case same:
		p.end(bus.Ack{Sequence: p.held, Duplicate: !p.again}, nil) // after a lost acknowledgement the repeat is the first
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
func check(event *events.Event, cluster string) error {
	row, known := event.Kind.Row()
	switch {
	case !known || event.Cluster != cluster || !row.Authorised(event.Source):
		return fmt.Errorf("%w: %q said by %q in %q", ErrUnfit, event.Kind, event.Source, event.Cluster)
	case !events.Token(event.ID) || !events.Token(event.Subject):
		return fmt.Errorf("%w: id %q, subject %q", ErrUnfit, event.ID, event.Subject)
	}
	if _, err := event.Read(); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrUnfit, event.Kind, err)
	}
	return nil
}
