package bus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
)

// Ack is the stream's answer to a publish.
type Ack struct {
	Sequence  uint64 // where the event is in its stream
	Duplicate bool   // it was there already, said by an earlier Publish
}

var (
	// ErrTaken says that a write-once subject holds another event.
	ErrTaken = errors.New("the write-once subject is taken")
	// ErrFenced says that another instance took the lease: this one must stop.
	ErrFenced = errors.New("fenced: another instance took the lease")
	// ErrOtherWords says that the stream holds an event with this id but other data.
	ErrOtherWords = errors.New("an event with this id was said with other words")
)

type fence struct {
	subject  string
	sequence uint64
	log      context.Context // lasts as long as the log in which it is
}

// Fence binds every later Publish on the event stream to the lease: the server refuses it with ErrFenced once the last
// message on the lease's subject is no longer the one at sequence; 0: none is there. A write-once subject needs no fence.
func (b *Bus) Fence(subject string, sequence uint64) {
	log, _ := b.mark.life()
	b.fence.Store(&fence{subject, sequence, log})
}

// publishTimeout is how long the stream may take to acknowledge before the same is said again.
const publishTimeout = 5 * time.Second

// Publish stores an event once and returns when the stream has it. It repeats until the stream acknowledges or ctx
// ends. Errors: ErrTaken, ErrFenced, ErrOtherWords, ErrFull, ErrLogReplaced where another log has come since, or why the event may not
// travel.
func (b *Bus) Publish(ctx context.Context, event events.Event) (ack Ack, err error) {
	if err := check(&event, b.cluster, event.SubjectName()); err != nil {
		return Ack{}, fmt.Errorf("publish %s: %w", event.Kind, err)
	}
	attempts := 0
	log, _ := b.mark.life()
	err = b.RepeatInLog(ctx, "publish "+string(event.Kind), func(ctx context.Context) (err error) {
		attempts++
		ack, err = b.attempt(ctx, log, event)
		return err
	})
	if err != nil {
		return Ack{}, fmt.Errorf("publish %s: %w", event.Kind, err)
	}
	ack.Duplicate = ack.Duplicate && attempts == 1 // after a lost acknowledgement the repeat is the first
	if streamOf(event.Kind).WriteOnce {
		b.trimPlans(ctx, event)
	}
	return ack, nil
}

// message makes the wire form; data that is too large goes into the object store first.
func (b *Bus) message(ctx context.Context, event events.Event) (*nats.Msg, error) {
	data, err := b.encode(event, "")
	if err != nil {
		return nil, err
	}
	if len(data) > events.MaxEventBytes {
		dataref, err := b.putPayload(ctx, streamOf(event.Kind).Payloads, event.Data)
		if err != nil {
			return nil, err
		}
		if data, err = b.encode(event, dataref); err != nil {
			return nil, err
		}
	}
	message := nats.NewMsg(event.SubjectOn(b.Secured()))
	message.Header.Set("content-type", ContentType)
	message.Data = data
	return message, nil
}

func (b *Bus) encode(event events.Event, dataref string) ([]byte, error) {
	signature, err := b.kit.sign(event, dataref)
	if err != nil {
		return nil, err
	}
	return encode(event, envelope{dataref, signature})
}

func (b *Bus) attempt(ctx, log context.Context, event events.Event) (Ack, error) {
	stream := streamOf(event.Kind)
	event, err := b.fresh(ctx, event)
	if err != nil {
		return Ack{}, err
	}
	message, err := b.message(ctx, event)
	if err != nil {
		return Ack{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	options := []jetstream.PublishOpt{
		jetstream.WithMsgID(b.kit.messageID(event.ID)), jetstream.WithExpectStream(b.Lane(stream.Name)),
	}
	fence := b.fence.Load()
	if fence != nil && !stream.WriteOnce {
		options = append(options, jetstream.WithExpectLastSequenceForSubject(fence.sequence, fence.subject))
	}
	ack, err := b.js.PublishMsg(ctx, message, options...)
	b.lookIfMissing(err)
	if err == nil && !stream.WriteOnce {
		b.mark.meet(log, ack.Sequence, time.Time{}, nil)
	}
	var api *jetstream.APIError
	switch {
	case err == nil && !ack.Duplicate:
		return Ack{Sequence: ack.Sequence}, nil
	case err == nil:
		return b.compare(ctx, stream, ack.Sequence, event, message.Data)
	case errors.As(err, &api) && stream.WriteOnce:
		return b.compareTaken(ctx, stream, event, message, err)
	case errors.As(err, &api) && wrongLastSequence(api):
		return Ack{}, b.fenced(ctx, fence, err)
	}
	return Ack{}, err
}

// fenced tells, after a refusal, whether the lease is another's: the server says "wrong last sequence" also while a
// publish of ours that expects it is on its way.
func (b *Bus) fenced(ctx context.Context, fence *fence, refusal error) error {
	last, _, err := b.last(ctx, events.EventStream, fence.subject)
	switch {
	case err != nil:
		return err
	case last.sequence == fence.sequence: // both 0 where there is none
		return refusal
	}
	return b.replacedOr(ctx, fence.log, ErrFenced)
}

// compareTaken tells, after a refusal by a write-once stream, whether the subject is taken, and by whom.
func (b *Bus) compareTaken(
	ctx context.Context, stream events.Stream, event events.Event, message *nats.Msg, refusal error,
) (Ack, error) {
	last, found, err := b.last(ctx, stream, message.Subject)
	switch {
	case err != nil:
		return Ack{}, err
	case !found:
		return Ack{}, refusal
	}
	return b.compare(ctx, stream, last.sequence, event, message.Data)
}

// compare reads back what the stream holds in an event's place: the same words, or others. An event that it holds no more was said.
func (b *Bus) compare(
	ctx context.Context, stream events.Stream, sequence uint64, event events.Event, message []byte,
) (Ack, error) {
	held, err := b.leader(ctx, stream)
	if err != nil {
		return Ack{}, err
	}
	there, err := held.GetMsg(ctx, sequence)
	switch isDropped := errors.Is(err, jetstream.ErrMsgNotFound) && !stream.WriteOnce; {
	case err != nil && !isDropped:
		return Ack{}, err
	case isDropped || sameWords(there.Data, message):
		return Ack{Sequence: sequence, Duplicate: true}, nil
	case stream.WriteOnce:
		return Ack{}, fmt.Errorf("%w: %s", ErrTaken, there.Subject)
	}
	return Ack{}, fmt.Errorf("%w: id %s at sequence %d", ErrOtherWords, event.ID, sequence)
}

// sameWords compares ids and data; the envelope's time and trace may differ.
func sameWords(a, b []byte) bool {
	first, firstWire, err := decode(a)
	if err != nil {
		return false
	}
	second, secondWire, err := decode(b)
	return err == nil && first.ID == second.ID && firstWire.dataref == secondWire.dataref && bytes.Equal(first.Data, second.Data)
}

func streamOf(kind events.Kind) events.Stream {
	if row, _ := kind.Row(); row.Plan {
		return events.PlanStream
	}
	return events.EventStream
}
